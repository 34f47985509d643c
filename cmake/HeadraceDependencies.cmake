# What the build depends on, and where it is found. See third_party/README.md.

find_package(Threads REQUIRED)

# nlohmann-json: a CMake package if one is installed, else the headers of the PyPI wheel.
find_package(nlohmann_json 3.11 QUIET CONFIG)
if(NOT nlohmann_json_FOUND)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c
      "import importlib.util as u; print(u.find_spec('nlohmann_json').submodule_search_locations[0] + '/include')"
    OUTPUT_VARIABLE HEADRACE_JSON_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE HEADRACE_JSON_RESULT ERROR_QUIET)
  if(NOT HEADRACE_JSON_RESULT EQUAL 0)
    message(FATAL_ERROR "nlohmann-json is missing: pip install nlohmann-json")
  endif()
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
  target_include_directories(nlohmann_json::nlohmann_json INTERFACE ${HEADRACE_JSON_INCLUDE})
endif()

if(HEADRACE_BUILD_TESTS)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "GoogleTest is missing: install libgtest-dev (tests/run does it for you)")
  endif()
endif()
