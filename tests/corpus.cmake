# How the corpus is judged, and a few cases and their twins; all of them: make corpus.
if(TOCSIN_PYTHON)
  add_test(NAME corpus.judging
    COMMAND ${TOCSIN_PYTHON} -m pytest -q -p no:cacheprovider test_judging.py
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/corpus)
  add_test(NAME corpus.quick
    COMMAND ${TOCSIN_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/corpus/run_corpus.py --all-found --jobs 1
      --quick --explain --tocsin $<TARGET_FILE:tocsin> --folder ${CMAKE_BINARY_DIR}/corpus)
  set_tests_properties(corpus.judging corpus.quick PROPERTIES LABELS corpus
                       ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1" TIMEOUT 600)
endif()
