# `cmake --install`: component `runtime` has both programs, `development` the C++ client as a CMake
# package (find_package(rlk), target rlk::client) and the .proto files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(RLK_INSTALL_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR}/rlk)
set(RLK_INSTALL_CMAKE ${CMAKE_INSTALL_LIBDIR}/cmake/rlk)

# Includes start at the root of the repository, so the installed headers keep their folders, in one
# of their own.
set(RLK_PUBLIC_HEADERS
  client/cpp/adaln.h
  client/cpp/arena.h
  client/cpp/checks.h
  client/cpp/client.h
  client/cpp/det_linear.h
  client/cpp/final_logit_softcap.h
  client/cpp/parity.h
  client/cpp/report.h
  client/cpp/resident.h
  client/cpp/rms_norm.h
  client/cpp/tensor.h
  client/cpp/timestep.h
  client/cpp/version.h
  kernels/core/dtype.h
  kernels/core/status.h
  kernels/core/tensor_view.h
  kernels/registry/signature.h
  proto/wire/signatures.h)
foreach(header ${RLK_PUBLIC_HEADERS})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${RLK_INSTALL_INCLUDE}/${folder}
          COMPONENT development)
endforeach()
foreach(target rlk_proto rlk_proto_grpc)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]h$")
  foreach(header ${sources})
    file(RELATIVE_PATH header ${RLK_PROTO_OUT} ${header})
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${RLK_PROTO_OUT}/${header} DESTINATION ${RLK_INSTALL_INCLUDE}/${folder}
            COMPONENT development)
  endforeach()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto/rlk ${PROJECT_SOURCE_DIR}/proto/google
        DESTINATION ${CMAKE_INSTALL_DATADIR}/rlk/proto
        COMPONENT development FILES_MATCHING PATTERN "*.proto")

# What the client links of this repository, under the names rlk::client, rlk::wire, ...
set(RLK_PACKAGE_TARGETS client core digest proto proto_grpc registry wire)
foreach(name ${RLK_PACKAGE_TARGETS})
  set_target_properties(rlk_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(rlk_${name} INTERFACE $<INSTALL_INTERFACE:${RLK_INSTALL_INCLUDE}>)
  target_compile_features(rlk_${name} INTERFACE cxx_std_20)
  add_library(rlk::${name} ALIAS rlk_${name})
  install(TARGETS rlk_${name} EXPORT rlk ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          COMPONENT development)
endforeach()
install(EXPORT rlk NAMESPACE rlk:: FILE rlkTargets.cmake DESTINATION ${RLK_INSTALL_CMAKE}
        COMPONENT development)

configure_package_config_file(
  ${CMAKE_CURRENT_SOURCE_DIR}/rlkConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/rlkConfig.cmake
  INSTALL_DESTINATION ${RLK_INSTALL_CMAKE} NO_SET_AND_CHECK_MACRO)
# While the version is 0.x, a new minor version may change the C++ interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/rlkConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rlkConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/rlkConfigVersion.cmake
        DESTINATION ${RLK_INSTALL_CMAKE} COMPONENT development)

install(TARGETS rlk_cli rlk_server_main RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
