# find_package with a sentence that says what to do.
macro(rematch_find name)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} ${ARGN} was not found; run ci/setup, or install it")
  endif()
endmacro()

# Sources of a room: every .cpp below the folder; its tests, and what only tests use, apart.
function(rematch_sources folder sources tests)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS "${folder}/*.cpp")
  set(for_tests ${found})
  list(FILTER for_tests INCLUDE REGEX "(_test\\.cpp|/testing/[a-z_]+\\.cpp)$")
  if(for_tests)
    list(REMOVE_ITEM found ${for_tests})
  endif()
  set(${sources} ${found} PARENT_SCOPE)
  set(${tests} ${for_tests} PARENT_SCOPE)
endfunction()

# Compiles the sources of each folder as one. A helper's name has to be unique in its folder, not in the room, and a
# new source can clash only with those beside it.
function(rematch_build_by_folder target)
  # clang-tidy reads sources one by one.
  if(CMAKE_CXX_CLANG_TIDY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source ${ARGN})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder})
  endforeach()
endfunction()

# For targets that do not compute on tensors: compiled for speed of building, by folder. What nearly every source
# includes is parsed once (headers that some sources include stay out: what they define costs every source).
function(rematch_build_quickly target)
  get_target_property(sources ${target} SOURCES)
  rematch_build_by_folder(${target} ${sources})
  target_precompile_headers(${target} PRIVATE <algorithm> <cstdint> <functional> <map> <memory> <optional>
    <span> <stdexcept> <string> <string_view> <utility> <vector> ${ARGN})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release,Mutants>:-O1>
    # Copies in std::string's operator+ that are not there (GCC 105329).
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow>)
endfunction()

# A library that is installed and exported as rematch::<name>.
function(rematch_library name)
  add_library(rematch_${name} STATIC ${ARGN})
  add_library(rematch::${name} ALIAS rematch_${name})
  set_target_properties(rematch_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(rematch_${name} PUBLIC cxx_std_20)
  target_include_directories(rematch_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/rematch>)
  target_link_libraries(rematch_${name} PRIVATE
    $<BUILD_INTERFACE:rematch_bits> $<BUILD_INTERFACE:rematch_warnings>)
  install(TARGETS rematch_${name} EXPORT rematchTargets COMPONENT development)
endfunction()
