# Installation, and the package that find_package(rematch) finds.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/rematch")

install(TARGETS rematch_engine rematch_properties EXPORT rematch
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/rematch"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/rematch")
install(EXPORT rematch NAMESPACE rematch:: FILE rematchTargets.cmake DESTINATION "${package_dir}")

foreach(program rematch rematch-scenario rematch-bench rematch-compare)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endforeach()
if(EXISTS "${PROJECT_SOURCE_DIR}/properties/regressions")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/properties/regressions"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/rematch" FILES_MATCHING PATTERN "*.json")
endif()

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/rematchConfig.cmake.in" "${PROJECT_BINARY_DIR}/rematchConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/rematchConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/rematchConfig.cmake" "${PROJECT_BINARY_DIR}/rematchConfigVersion.cmake"
  DESTINATION "${package_dir}")
