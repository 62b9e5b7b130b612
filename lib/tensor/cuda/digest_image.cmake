# The GPU kernel, compiled by nvcc when the build is configured, as bytes of C (digest_tiles.h).
#
# Machine code for the architectures of data centres that this nvcc knows, and PTX for the oldest
# one, which the driver translates for all others. Without nvcc, or where it fails and TOCSIN_CUDA
# is AUTO, there are no bytes: the library works, and says that it has no kernel.

set(digest_image_bytes "0") # C has no empty arrays
set(digest_image_size 0)
set(digest_image_parts "")

# compile_digest_image(NVCC PROBLEM): make digest_kernel.fatbin unless it is newer than its sources.
function(compile_digest_image nvcc problem)
  set(image ${CMAKE_BINARY_DIR}/digest_kernel.fatbin)
  set(source ${CMAKE_SOURCE_DIR}/lib/tensor/cuda/digest_kernel.cu)
  set(inputs ${source} ${CMAKE_SOURCE_DIR}/lib/tensor/cuda/digest_kernel.h
             ${CMAKE_SOURCE_DIR}/lib/tensor/mersenne61.h
             ${CMAKE_SOURCE_DIR}/lib/tensor/cuda/digest_image.cmake)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${inputs})
  execute_process(COMMAND ${nvcc} --list-gpu-arch OUTPUT_VARIABLE known ERROR_VARIABLE said
                  RESULT_VARIABLE failed)
  if(failed)
    set(${problem} "${said}" PARENT_SCOPE)
    return()
  endif()
  set(flags "")
  set(parts "")
  foreach(number IN ITEMS 80 90 100)
    if(known MATCHES "compute_${number}\n")
      list(APPEND flags -gencode arch=compute_${number},code=sm_${number})
      string(APPEND parts "sm_${number} ")
    endif()
  endforeach()
  string(REGEX MATCH "compute_7[05]|compute_80" oldest "${known}")
  list(APPEND flags -gencode arch=${oldest},code=${oldest})
  set(digest_image_parts "${parts}${oldest}" PARENT_SCOPE)

  set(is_new FALSE)
  foreach(input IN LISTS inputs)
    if(${input} IS_NEWER_THAN ${image})
      set(is_new TRUE)
    endif()
  endforeach()
  if(is_new)
    execute_process(
      COMMAND ${nvcc} -fatbin -std=c++17 -O3 -I${CMAKE_SOURCE_DIR}/lib -Werror all-warnings
              -Xcompiler -Wall,-Wextra,-Wshadow,-Wconversion ${flags} ${source} -o ${image}
      OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE failed)
    if(failed)
      file(REMOVE ${image})
      set(${problem} "${said}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

if(NOT TOCSIN_CUDA MATCHES "^(ON|OFF|AUTO)$")
  message(FATAL_ERROR "TOCSIN_CUDA is '${TOCSIN_CUDA}': ON, OFF or AUTO")
endif()
set(digest_image_problem "TOCSIN_CUDA is OFF")
if(NOT TOCSIN_CUDA STREQUAL "OFF")
  find_program(TOCSIN_NVCC nvcc HINTS /usr/local/cuda/bin)
  set(digest_image_problem "")
  if(TOCSIN_NVCC)
    compile_digest_image(${TOCSIN_NVCC} digest_image_problem)
  else()
    set(digest_image_problem "there is no nvcc")
  endif()
endif()
if(digest_image_problem STREQUAL "")
  read_as_bytes(${CMAKE_BINARY_DIR}/digest_kernel.fatbin digest_image_bytes digest_image_size)
  message(STATUS "GPU kernel: ${digest_image_parts}")
elseif(TOCSIN_CUDA STREQUAL "ON")
  message(FATAL_ERROR "no GPU kernel: ${digest_image_problem}")
else()
  set(digest_image_parts "")
  message(STATUS "no GPU kernel: ${digest_image_problem}")
endif()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/digest_image.c CONTENT
     "#include <stdalign.h>\n#include <tensor/cuda/digest_tiles.h>\n\
alignas(16) const unsigned char tocsin_digest_image[] = {\n@digest_image_bytes@\n};\n\
const size_t tocsin_digest_image_bytes = @digest_image_size@;\n\
const char tocsin_digest_image_parts[] = \"@digest_image_parts@\";\n" @ONLY)
