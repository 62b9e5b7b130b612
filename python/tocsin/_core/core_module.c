/* core_module.c - the extension module tocsin._core: the patch engine and the observer.
 *
 * One build per minor version of CPython: interception is outside the limited API. The module keeps
 * process-wide state and relies on the GIL; it is for the main interpreter.
 */
#include "guard_functions.h"
#include "hook_engine.h"

#ifdef Py_GIL_DISABLED
#error "the GIL is what keeps threads apart here: a free-threaded build needs locks first"
#endif

static int module_exec(PyObject *module)
{
    if (tocsin_hook_module_exec(module) < 0 || tocsin_hook_code_module_exec(module) < 0 ||
        tocsin_hook_count_module_exec(module) < 0 || tocsin_guard_module_exec(module) < 0 ||
        tocsin_multi_digest_module_exec(module) < 0 || tocsin_gate_module_exec(module) < 0 ||
        tocsin_communication_module_exec(module) < 0 ||
        tocsin_device_digest_module_exec(module) < 0) {
        return -1;
    }
    return tocsin_observe_module_exec(module);
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tocsin._core",
    .m_doc = PyDoc_STR("Interception and recording of calls; see docs/hooking.md."),
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && module_exec(module) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
