# lib/scale under mpirun: tests/mpi/ranks.sh drives the program scale_ranks.
if(TARGET tocsin_mpi)
  set(tocsin_mpi_environment ${tocsin_environment} "MPIRUN=${MPIEXEC_EXECUTABLE}")
  if(TOCSIN_SANITIZE) # their dlopen does not see the program's run path, and Open MPI itself leaks
    list(APPEND tocsin_mpi_environment "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:tocsin_mpi>"
                                       "ASAN_OPTIONS=detect_leaks=0:abort_on_error=1")
  endif()
  add_executable(scale_ranks ${CMAKE_CURRENT_SOURCE_DIR}/mpi/scale_ranks.c)
  target_include_directories(scale_ranks PRIVATE ${CMAKE_SOURCE_DIR}/lib)
  target_link_libraries(scale_ranks PRIVATE tocsin_static)
  set_target_properties(scale_ranks PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:tocsin_mpi>)
  add_dependencies(scale_ranks tocsin_mpi)
  add_test(NAME mpi.ranks COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/mpi/ranks.sh)
  set_tests_properties(mpi.ranks PROPERTIES LABELS mpi ENVIRONMENT
    "${tocsin_mpi_environment};SCALE_RANKS=$<TARGET_FILE:scale_ranks>")
  add_executable(infer_runs ${CMAKE_CURRENT_SOURCE_DIR}/mpi/infer_runs.c)
  target_include_directories(infer_runs PRIVATE ${CMAKE_SOURCE_DIR}/lib ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(infer_runs PRIVATE tocsin_static)
  add_test(NAME mpi.infer COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/mpi/infer_ranks.sh)
  set_tests_properties(mpi.infer PROPERTIES LABELS mpi ENVIRONMENT
    "${tocsin_mpi_environment};INFER_RUNS=$<TARGET_FILE:infer_runs>")
  if(TOCSIN_PYTHON)
    add_test(NAME mpi.verify COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/mpi/verify_ranks.sh)
    set_tests_properties(mpi.verify PROPERTIES LABELS mpi ENVIRONMENT
      "${tocsin_mpi_environment};PYTHON=${TOCSIN_PYTHON}")
  endif()
endif()
