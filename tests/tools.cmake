# The house rules hold, and the programs that check them notice breaches.
foreach(tool IN ITEMS tidy layers links)
  add_test(NAME tools.${tool} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/${tool})
  set_tests_properties(tools.${tool} PROPERTIES LABELS tools)
endforeach()
add_test(NAME tools.notice
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tools/check_notice.py
          ${CMAKE_SOURCE_DIR})
set_tests_properties(tools.notice PROPERTIES LABELS tools)
