# The C examples are built as a user would build them, against the library of this build, and run.
set(example_link_flags "")
if(TOCSIN_SANITIZE)
  set(example_link_flags -fsanitize=${TOCSIN_SANITIZE})
endif()
add_test(NAME examples.digest
  COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${CMAKE_SOURCE_DIR}/examples/digest
    ${CMAKE_BINARY_DIR}/examples/digest --build-generator ${CMAKE_GENERATOR}
    --build-options -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
      -DTOCSIN_INCLUDE=${CMAKE_SOURCE_DIR}/include
      -DTOCSIN_LIBRARY=$<TARGET_FILE:tocsin_static>
      -DCMAKE_EXE_LINKER_FLAGS=${example_link_flags}
    --test-command digest_example)
set_tests_properties(examples.digest PROPERTIES LABELS examples)
