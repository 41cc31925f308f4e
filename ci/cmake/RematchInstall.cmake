include(CMakePackageConfigHelpers)

# The component "development" is what find_package(rematch) finds: libraries, their headers, how they
# are linked. The others are programs: program, scenarios, bench.
foreach(room engine properties)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${room}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rematch COMPONENT development
    FILES_MATCHING PATTERN "*.h" PATTERN "*.def"
    # Headers that need a test framework, and those of the program, are not for users.
    PATTERN "cli" EXCLUDE
    PATTERN "conform" EXCLUDE
    PATTERN "output" EXCLUDE
    PATTERN "emulator" EXCLUDE
    PATTERN "faults/support.h" EXCLUDE
    PATTERN "json_fields.h" EXCLUDE
    PATTERN "json_reader.h" EXCLUDE
    PATTERN "entries.h" EXCLUDE
    PATTERN "testing" EXCLUDE)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/properties/cli/program.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rematch/properties/cli COMPONENT development)

# The component "program" is the program and what it reads, where it finds it: all that a wheel has.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/properties/regressions
  DESTINATION ${CMAKE_INSTALL_DATADIR}/rematch COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/properties/python/rematch
  DESTINATION ${CMAKE_INSTALL_DATADIR}/rematch/python COMPONENT program
  PATTERN "__pycache__" EXCLUDE
  PATTERN "test_*.py" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/properties/subjects/PROTOCOL.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/rematch COMPONENT program)

install(EXPORT rematchTargets NAMESPACE rematch::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/rematch COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/ci/cmake/rematchConfig.cmake.in
  ${PROJECT_BINARY_DIR}/rematchConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/rematch)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rematchConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
if(REMATCH_HAS_CUDA)
  install(FILES ${PROJECT_SOURCE_DIR}/ci/cmake/FindcuDNN.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/rematch COMPONENT development)
endif()
install(FILES ${PROJECT_BINARY_DIR}/rematchConfig.cmake
  ${PROJECT_BINARY_DIR}/rematchConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/rematch COMPONENT development)
