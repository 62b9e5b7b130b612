# The digest on a device against an emulated driver: a libcuda.so.1 in a folder of its own.
add_library(emulated_driver SHARED ${CMAKE_CURRENT_SOURCE_DIR}/cuda/emulated_driver.c)
target_include_directories(emulated_driver PRIVATE ${CMAKE_SOURCE_DIR}/include
  ${CMAKE_SOURCE_DIR}/lib ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(emulated_driver PRIVATE m)
set_target_properties(emulated_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/emulated)
add_executable(digest_device_emulated ${CMAKE_CURRENT_SOURCE_DIR}/cuda/digest_device_emulated.c)
target_include_directories(digest_device_emulated PRIVATE ${CMAKE_SOURCE_DIR}/lib
  ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(digest_device_emulated PRIVATE tocsin_static ${CMOCKA_LIBRARY})
add_dependencies(digest_device_emulated emulated_driver)
add_test(NAME unit.digest_device_emulated COMMAND digest_device_emulated)
set_tests_properties(unit.digest_device_emulated PROPERTIES LABELS unit ENVIRONMENT
  "${tocsin_environment};LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/emulated")
