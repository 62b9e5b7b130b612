# Every tests/cli/*.sh is one ctest entry: a script that uses the command as a person would.
if(TOCSIN_PYTHON)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cli/*.sh)
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_test(NAME cli.${name} COMMAND bash ${source} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(cli.${name} PROPERTIES LABELS cli ENVIRONMENT "${tocsin_environment}")
  endforeach()
endif()
