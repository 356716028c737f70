# libbaton, the state plane as one shared library with only its public headers: the modules up to the
# hand-off, compiled once more as position-independent code. Built on demand (make install), since the
# binary itself links the modules statically.
#   find_package(baton)  -> baton::baton          pkg-config baton
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(baton_library SHARED)
foreach(module base identity memory connector handoff api)
  get_target_property(sources baton_${module} SOURCES)
  get_target_property(directory baton_${module} SOURCE_DIR)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${directory})
    target_sources(baton_library PRIVATE ${source})
  endforeach()
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS)
    get_target_property(values baton_${module} ${property})
    if(values AND property STREQUAL INCLUDE_DIRECTORIES)
      target_include_directories(baton_library PRIVATE ${values})
    elseif(values)
      target_compile_definitions(baton_library PRIVATE ${values})
    endif()
  endforeach()
  get_target_property(links baton_${module} LINK_LIBRARIES)
  foreach(link ${links})
    if(link AND NOT link MATCHES "^baton_")
      target_link_libraries(baton_library PRIVATE ${link})
    endif()
  endforeach()
endforeach()
set_target_properties(baton_library PROPERTIES
  OUTPUT_NAME baton EXPORT_NAME baton VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
target_include_directories(baton_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(baton_library INTERFACE cxx_std_20)

install(TARGETS baton_library EXPORT baton LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/baton DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT library)
install(EXPORT baton NAMESPACE baton:: FILE batonConfig.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/baton COMPONENT library)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/batonConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/batonConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/baton COMPONENT library)
configure_file(${CMAKE_SOURCE_DIR}/cmake/baton.pc.in ${CMAKE_BINARY_DIR}/baton.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/baton.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT library)
