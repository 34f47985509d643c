# libheadrace.so: the rooms of cpp/ as one library that exports the public API and nothing else,
# and what is installed with it (component dev): headers, CMake package, pkg-config file. The same
# rules fill the wheel, whose Python module is a user of the library like any other.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HEADRACE_ABI ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(headrace_exports ${PROJECT_BINARY_DIR}/cmake/headrace.map)
configure_file(${PROJECT_SOURCE_DIR}/cmake/headrace.map.in ${headrace_exports} @ONLY)

# All objects of the rooms that define public functions go in; of the others, what these call for.
add_library(headrace SHARED
  $<TARGET_OBJECTS:headrace_c_api> $<TARGET_OBJECTS:headrace_chat> $<TARGET_OBJECTS:headrace_engine>
  $<TARGET_OBJECTS:headrace_replica> $<TARGET_OBJECTS:headrace_loop>
  $<TARGET_OBJECTS:headrace_grammar> $<TARGET_OBJECTS:headrace_media> $<TARGET_OBJECTS:headrace_text>
  $<TARGET_OBJECTS:headrace_base>)
add_library(headrace::headrace ALIAS headrace)
target_link_libraries(headrace PRIVATE headrace_chat headrace_engine headrace_grammar headrace_media headrace_text)
target_include_directories(headrace PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cpp/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(headrace PUBLIC cxx_std_20)
target_link_options(headrace PRIVATE -Wl,--version-script=${headrace_exports})
if(NOT HEADRACE_SANITIZE)
  target_link_options(headrace PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(headrace PROPERTIES
  LINKER_LANGUAGE CXX
  LINK_DEPENDS ${headrace_exports}
  SOVERSION ${HEADRACE_ABI})

# A wheel holds no symbolic links: a script for the linker is what -lheadrace finds there.
set(headrace_namelink)
if(SKBUILD)
  set(headrace_namelink NAMELINK_SKIP)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/cmake/libheadrace.so
    CONTENT "/* For linkers; the library is the file named here. */\nINPUT(-l:libheadrace.so.@HEADRACE_ABI@)\n"
    @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/libheadrace.so DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT dev)
endif()
install(TARGETS headrace EXPORT headraceTargets COMPONENT dev
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev ${headrace_namelink})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/cpp/include/headrace
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)

set(headrace_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
install(EXPORT headraceTargets NAMESPACE headrace:: DESTINATION ${headrace_cmake_dir}
  COMPONENT dev)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/headraceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/headraceConfig.cmake INSTALL_DESTINATION ${headrace_cmake_dir}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the ABI.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/headraceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/cmake/headraceConfig.cmake
  ${PROJECT_BINARY_DIR}/cmake/headraceConfigVersion.cmake
  DESTINATION ${headrace_cmake_dir} COMPONENT dev)

set(headrace_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR
  BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${headrace_pkgconfig_dir} OUTPUT_VARIABLE HEADRACE_PC_LIBDIR)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR
  BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${headrace_pkgconfig_dir}
  OUTPUT_VARIABLE HEADRACE_PC_INCLUDEDIR)
configure_file(${PROJECT_SOURCE_DIR}/cmake/headrace.pc.in ${PROJECT_BINARY_DIR}/cmake/headrace.pc
  @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/headrace.pc DESTINATION ${headrace_pkgconfig_dir}
  COMPONENT dev)
