# Whether the CUDA plug-in is built: HEADRACE_BUILD_CUDA says what HEADRACE_CUDA came to. Nothing
# outside cuda/ and tests/cuda needs a CUDA toolkit.

set(HEADRACE_CUDA AUTO CACHE STRING
  "Build the CUDA plug-in: ON, OFF, or AUTO (where nvcc and an NVIDIA GPU are present)")
set_property(CACHE HEADRACE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(HEADRACE_CUDA_ARCHS "80-real;90a-real" CACHE STRING
  "GPU architectures to compile for, as CMAKE_CUDA_ARCHITECTURES takes them")

find_program(HEADRACE_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME
  PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(HEADRACE_NVCC)

string(TOUPPER "${HEADRACE_CUDA}" headrace_cuda)
set(HEADRACE_BUILD_CUDA OFF)
if(headrace_cuda STREQUAL "AUTO")
  if(HEADRACE_NVCC AND EXISTS /proc/driver/nvidia/version OR HEADRACE_NVCC AND EXISTS /dev/nvidia0)
    set(HEADRACE_BUILD_CUDA ON)
  endif()
elseif(headrace_cuda)
  if(NOT HEADRACE_NVCC)
    message(FATAL_ERROR "HEADRACE_CUDA is ${HEADRACE_CUDA}, but there is no nvcc: install the CUDA "
      "toolkit, put nvcc into PATH, or set HEADRACE_CUDA=OFF")
  endif()
  set(HEADRACE_BUILD_CUDA ON)
endif()
message(STATUS "CUDA plug-in: ${HEADRACE_BUILD_CUDA} (HEADRACE_CUDA=${HEADRACE_CUDA})")
