# headrace_library(NAME [HOT] SOURCES... DEPS... [ALONE ...]): one static library per folder of
# cpp/. HOT: tests spend their time in it, so that sanitizer builds optimize it, too.
# headrace_test(NAME [HOT] SOURCES... DEPS... IN builds... [TSAN filter] [SHARDS n]
# [LATER filter] [ALONE ...]): one GoogleTest program, known to ctest.
#   IN      the builds of `tests/run` that make and run it; `tests/run all` makes and runs it in `release`
#           and `asan`, whatever it says:
#             release  optimized: bits, kernels of every ISA, whole models
#             asan     AddressSanitizer and UBSan: what is the same however it is optimized
#             tsan     ThreadSanitizer: what depends on threads; tests/repeat.py runs it many times, too
#   TSAN    of its tests only these depend on threads, and run under ThreadSanitizer
#   SHARDS  ctest runs its tests as so many processes
#   LATER   of its tests those that take long and repeat what others show: `tests/run all` runs them
#           (the label `later`)
# ALONE: files, or folders of them, that are a unit each. All others of a folder are one.
# headrace_gpu_program(NAME SOURCES...): a program that needs a GPU: in the target gpu_tests alone, and
# unknown to ctest. CI compiles it, tests/gpu/run.sh runs it.

add_library(headrace_flags INTERFACE)
target_compile_options(headrace_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
  # A contraction the compiler picks per instantiation would change bits with the tile size:
  # kernels ask for fused multiply-add by name.
  -ffp-contract=off -fno-math-errno
  # What cpp/base/mutex.h annotates.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>
  # GCC 12's library uses functions of its own that it calls deprecated.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>
  $<$<BOOL:${HEADRACE_WERROR}>:-Werror>)
target_include_directories(headrace_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/cpp ${PROJECT_SOURCE_DIR}/cpp/include)
target_compile_definitions(headrace_flags INTERFACE HEADRACE_VERSION="${PROJECT_VERSION}")
if(HEADRACE_SANITIZE)
  target_compile_options(headrace_flags INTERFACE
    -fsanitize=${HEADRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  target_link_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE})
  # Compilers tell code of sanitizers in different ways.
  if(HEADRACE_SANITIZE MATCHES address)
    target_compile_definitions(headrace_flags INTERFACE HEADRACE_ASAN)
    # Clang would keep the frames of functions that have returned, and the emulation leaves many fibers
    # in the middle of theirs.
    target_compile_options(headrace_flags INTERFACE
      $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fsanitize-address-use-after-return=never>)
  endif()
  if(HEADRACE_SANITIZE MATCHES thread)
    target_compile_definitions(headrace_flags INTERFACE HEADRACE_TSAN)
  endif()
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
# takes longer to read than they take to compile. ALONE: but these files, or those of these folders.
function(headrace_unity target)
  cmake_parse_arguments(ARG "" "" "ALONE" ${ARGN})
  if(NOT HEADRACE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes a unit's own classes for a header's.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  foreach(source ${ARG_UNPARSED_ARGUMENTS})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    cmake_path(GET source FILENAME file)
    if(folder IN_LIST ARG_ALONE OR file IN_LIST ARG_ALONE)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    else()
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP "room_${folder}")
    endif()
  endforeach()
endfunction()

function(headrace_library name)
  cmake_parse_arguments(ARG "HOT" "" "SOURCES;DEPS;ALONE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  headrace_unity(${name} ${ARG_SOURCES} ALONE ${ARG_ALONE})
  target_link_libraries(${name} PUBLIC headrace_flags ${ARG_DEPS})
  if(ARG_HOT)
    target_compile_options(${name} PRIVATE ${headrace_hot_options})
  endif()
endfunction()

# The build that this is, of those that IN names, and one target for the programs of each.
if(HEADRACE_SANITIZE STREQUAL "thread")
  set(headrace_build tsan)
elseif(HEADRACE_SANITIZE)
  set(headrace_build asan)
else()
  set(headrace_build release)
endif()
add_custom_target(build_tests)
add_custom_target(all_tests)

# What most tests include takes longer to read than most tests. A precompiled header is for one level of
# optimization.
function(headrace_test_pch name)
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/pch.cc)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_link_libraries(${name} PRIVATE headrace_flags GTest::gtest)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${headrace_test_options} ${ARGN})
  target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/pch.h)
endfunction()
if(HEADRACE_PCH AND HEADRACE_BUILD_TESTS)
  headrace_test_pch(headrace_pch)
  if(headrace_hot_options)
    headrace_test_pch(headrace_pch_hot ${headrace_hot_options})
  endif()
endif()

# headrace_test_objects(TARGET HOT): compiled as tests are. (Libraries and programs share a precompiled
# header if both leave it to the compiler how code is placed.)
function(headrace_test_objects target hot)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${target} PRIVATE ${headrace_test_options})
  set(pch headrace_pch)
  if(hot AND headrace_hot_options)
    target_compile_options(${target} PRIVATE ${headrace_hot_options})
    set(pch headrace_pch_hot)
  endif()
  if(HEADRACE_PCH)
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()

# headrace_add_test(NAME IN TARGET SHARDS [ARGUMENTS...])
function(headrace_add_test name in target shards)
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    if(shards GREATER 1)
      string(APPEND test "_${shard}")
    endif()
    add_test(NAME ${test} COMMAND ${target} ${ARGN})
    set_tests_properties(${test} PROPERTIES LABELS "${in}" TIMEOUT 1800
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard}")
  endforeach()
  add_dependencies(all_tests ${target})
  if(headrace_build IN_LIST in)
    add_dependencies(build_tests ${target})
  elseif(NOT in STREQUAL "later")
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

function(headrace_test name)
  cmake_parse_arguments(ARG "HOT" "TSAN;SHARDS;LATER" "SOURCES;DEPS;IN;ALONE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  headrace_unity(${name} ${ARG_SOURCES} ALONE ${ARG_ALONE})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  headrace_test_objects(${name} ${ARG_HOT})
  set(filter)
  if(ARG_LATER)
    set(filter "--gtest_filter=-${ARG_LATER}")
    headrace_add_test(${name}_later later ${name} 4 "--gtest_filter=${ARG_LATER}")
  endif()
  if(ARG_TSAN AND headrace_build STREQUAL "tsan")
    set(filter "--gtest_filter=${ARG_TSAN}")
    set(ARG_SHARDS 1)
  elseif(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  headrace_add_test(${name} "${ARG_IN}" ${name} ${ARG_SHARDS} ${filter})
  if(ARG_TSAN AND headrace_build STREQUAL "tsan")
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "Running 0 tests")
  elseif("tsan" IN_LIST ARG_IN)  # for tests/repeat.py, which asks for one of the label `threads`
    if(ARG_TSAN)
      set(filter "--gtest_filter=${ARG_TSAN}")
    endif()
    add_test(NAME ${name}_threads COMMAND ${name} ${filter})
    set_tests_properties(${name}_threads PROPERTIES LABELS threads TIMEOUT 1800)
  endif()
endfunction()

add_custom_target(gpu_tests)

function(headrace_gpu_program name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${name} PRIVATE headrace_flags GTest::gtest)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_dependencies(gpu_tests ${name})
endfunction()
