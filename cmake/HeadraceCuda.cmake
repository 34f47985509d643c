# Whether the CUDA plug-in is built: HEADRACE_BUILD_CUDA says what HEADRACE_CUDA came to. Nothing
# outside cuda/ and tests/cuda needs a CUDA toolkit.

set(HEADRACE_CUDA AUTO CACHE STRING
  "Build the CUDA plug-in: ON, OFF, or AUTO (where nvcc and an NVIDIA GPU are present)")
set_property(CACHE HEADRACE_CUDA PROPERTY STRINGS AUTO ON OFF)
option(HEADRACE_CUDA_DEBUG_BARRIERS
  "Kernels in which a wait at a barrier takes seconds say at which one and end" OFF)
# Of cudaGetDriverEntryPointByVersion.
set(HEADRACE_CUDA_MINIMUM 12.5)
# 3.25.0 and 3.25.1 know no C++20 for nvcc.
set(HEADRACE_CUDA_CMAKE_MINIMUM 3.25.2)

find_program(HEADRACE_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME
  PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(HEADRACE_NVCC)

string(TOUPPER "${HEADRACE_CUDA}" headrace_cuda)
set(HEADRACE_BUILD_CUDA OFF)
set(headrace_toolkit 0)
if(HEADRACE_NVCC AND headrace_cuda)
  execute_process(COMMAND ${HEADRACE_NVCC} --version OUTPUT_VARIABLE headrace_toolkit ERROR_QUIET)
  string(REGEX REPLACE ".*release ([0-9.]+).*" "\\1" headrace_toolkit "${headrace_toolkit}")
endif()
set(headrace_cuda_lacks)
if(headrace_toolkit VERSION_LESS HEADRACE_CUDA_MINIMUM)
  set(headrace_cuda_lacks "${HEADRACE_NVCC} is of CUDA ${headrace_toolkit}: install CUDA \
${HEADRACE_CUDA_MINIMUM} or later, set HEADRACE_NVCC to its nvcc")
elseif(CMAKE_VERSION VERSION_LESS HEADRACE_CUDA_CMAKE_MINIMUM)
  set(headrace_cuda_lacks "this is CMake ${CMAKE_VERSION}: install CMake \
${HEADRACE_CUDA_CMAKE_MINIMUM} or later (pip install cmake)")
endif()
if(headrace_cuda STREQUAL "AUTO")
  if(HEADRACE_NVCC AND (EXISTS /proc/driver/nvidia/version OR EXISTS /dev/nvidia0))
    if(headrace_cuda_lacks)
      message(WARNING "The CUDA plug-in is left out, because ${headrace_cuda_lacks}, or set "
        "HEADRACE_CUDA=OFF")
    else()
      set(HEADRACE_BUILD_CUDA ON)
    endif()
  endif()
elseif(headrace_cuda)
  if(NOT HEADRACE_NVCC)
    message(FATAL_ERROR "HEADRACE_CUDA is ${HEADRACE_CUDA}, but there is no nvcc: install the CUDA "
      "toolkit, put nvcc into PATH, or set HEADRACE_CUDA=OFF")
  elseif(headrace_cuda_lacks)
    message(FATAL_ERROR "HEADRACE_CUDA is ${HEADRACE_CUDA}, but ${headrace_cuda_lacks}, or set "
      "HEADRACE_CUDA=OFF")
  endif()
  set(HEADRACE_BUILD_CUDA ON)
endif()
message(STATUS "CUDA plug-in: ${HEADRACE_BUILD_CUDA} (HEADRACE_CUDA=${HEADRACE_CUDA})")

# Machine code for every generation since Ampere that the toolkit knows; GPUs to come compile the
# PTX of the latest one.
set(headrace_archs 80-real 86-real 89-real 90a-real)
if(headrace_toolkit VERSION_LESS 12.8)
  list(APPEND headrace_archs 90-virtual)
else()
  list(APPEND headrace_archs 100 120-real)
endif()
set(HEADRACE_CUDA_ARCHS "${headrace_archs}" CACHE STRING
  "GPU architectures to compile for, as CMAKE_CUDA_ARCHITECTURES takes them")
set(CMAKE_CUDA_ARCHITECTURES ${HEADRACE_CUDA_ARCHS})  # for all folders: any may hold CUDA objects
