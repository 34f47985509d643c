# headrace_library(NAME [HOT] SOURCES... DEPS...): one static library per folder of cpp/. HOT: tests
# spend their time in it, so that sanitizer builds optimize it, too.
# headrace_test(NAME [HOT] SOURCES... DEPS... [LABELS ...] [TSAN filter]): one GoogleTest binary, known to
# ctest. HOT as above: it computes much itself. Labels:
#   threads   depends on threads, time or load: is in the target tsan_tests, what runs under
#             ThreadSanitizer, runs beside no other test, and tests/repeat.py runs it many times.
#             TSAN filter: only these of its tests depend on threads, and run under ThreadSanitizer
#   emulated  runs CUDA kernels in the emulation: `tests/run` runs it without sanitizers,
#             `tests/run all` with AddressSanitizer, too
#   sanitized what it tests is the same however it is optimized: `tests/run` builds and runs it with
#             sanitizers alone, `tests/run all` without them, too (the target sanitized_tests)
# headrace_gpu_program(NAME SOURCES...): a program that needs a GPU: in the target gpu_tests alone, and
# unknown to ctest. CI compiles it, tests/gpu/run.sh runs it.

add_library(headrace_flags INTERFACE)
target_compile_options(headrace_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
  # A contraction the compiler picks per instantiation would change bits with the tile size:
  # kernels ask for fused multiply-add by name.
  -ffp-contract=off -fno-math-errno
  $<$<BOOL:${HEADRACE_WERROR}>:-Werror>)
target_include_directories(headrace_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/cpp ${PROJECT_SOURCE_DIR}/cpp/include)
target_compile_definitions(headrace_flags INTERFACE HEADRACE_VERSION="${PROJECT_VERSION}")
if(HEADRACE_SANITIZE)
  target_compile_options(headrace_flags INTERFACE
    -fsanitize=${HEADRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  target_link_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE})
endif()

# Most of the time of a sanitizer build goes to optimizing what the sanitizer has added: tests/run
# asks for -O0, and only hot code is optimized. Test programs take longer to compile than to run, so
# they are optimized less than the engine.
set(headrace_hot_options)
set(headrace_test_options)
if(HEADRACE_SANITIZE)
  set(headrace_hot_options -O1)
  # A third of the time that a test takes to compile goes to UBSan; it is there for the engine.
  if(HEADRACE_SANITIZE MATCHES undefined)
    set(headrace_test_options -fno-sanitize=undefined)
  endif()
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(headrace_test_options -O1)
endif()

# headrace_unity(TARGET SOURCES...): the files of a folder are compiled as one unit. What they include
# takes longer to read than they take to compile.
function(headrace_unity target)
  if(NOT HEADRACE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes a unit's own classes for a header's.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  foreach(source ${ARGN})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${target}_${folder}")
  endforeach()
endfunction()

function(headrace_library name)
  cmake_parse_arguments(ARG "HOT" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  headrace_unity(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC headrace_flags ${ARG_DEPS})
  if(ARG_HOT)
    target_compile_options(${name} PRIVATE ${headrace_hot_options})
  endif()
endfunction()

add_custom_target(asan_tests)
add_custom_target(tsan_tests)
add_custom_target(sanitized_tests)

# GoogleTest's header, which every test includes, takes longer to read than most tests.
if(HEADRACE_PCH AND HEADRACE_BUILD_TESTS)
  file(WRITE ${PROJECT_BINARY_DIR}/test_pch.cc "int main() {}\n")
  add_executable(headrace_test_pch ${PROJECT_BINARY_DIR}/test_pch.cc)
  target_link_libraries(headrace_test_pch PRIVATE headrace_flags GTest::gtest)
  target_compile_options(headrace_test_pch PRIVATE ${headrace_test_options})
  target_precompile_headers(headrace_test_pch PRIVATE <gtest/gtest.h>)
endif()

function(headrace_test name)
  cmake_parse_arguments(ARG "HOT" "TSAN" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${headrace_test_options})
  if(ARG_HOT)
    target_compile_options(${name} PRIVATE ${headrace_hot_options})
  endif()
  # A precompiled header is for one level of optimization.
  if(HEADRACE_PCH AND NOT (ARG_HOT AND HEADRACE_SANITIZE))
    target_precompile_headers(${name} REUSE_FROM headrace_test_pch)
  endif()
  if(ARG_TSAN AND HEADRACE_SANITIZE STREQUAL "thread")
    add_test(NAME ${name} COMMAND ${name} "--gtest_filter=${ARG_TSAN}")
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "Running 0 tests")
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 1800)
  if(NOT "emulated" IN_LIST ARG_LABELS)
    add_dependencies(asan_tests ${name})
  endif()
  if("sanitized" IN_LIST ARG_LABELS)
    add_dependencies(sanitized_tests ${name})
    if(NOT HEADRACE_SANITIZE)
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  endif()
  if("threads" IN_LIST ARG_LABELS)
    add_dependencies(tsan_tests ${name})
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

add_custom_target(gpu_tests)

function(headrace_gpu_program name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${name} PRIVATE headrace_flags GTest::gtest)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_dependencies(gpu_tests ${name})
endfunction()
