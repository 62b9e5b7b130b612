# Every tests/python/test_*.py is one ctest entry, run by pytest with the package of this build.
if(TOCSIN_PYTHON)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/python/test_*.py)
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_test(NAME python.${name}
      COMMAND ${TOCSIN_PYTHON} -m pytest -q -p no:cacheprovider ${source}
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(python.${name} PROPERTIES LABELS python ENVIRONMENT
      "${tocsin_environment};PYTHONPATH=${CMAKE_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
  endforeach()
endif()
