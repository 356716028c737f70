# One function declares a module: its sources, what it may include, its tests, fuzzers.
#
#   baton_module(NAME identity
#                HDRS digest.h seal.h
#                SRCS digest.cc seal.cc
#                DEPS base                     # other Baton modules, short names
#                LIBS PkgConfig::XXHASH        # outside libraries
#                TESTS digest_test.cc seal_test.cc
#                OPTIONAL_TESTS vectors_test.cc  # skip themselves where their data is absent
#                TEST_DEPS ...                 # further modules or libraries for the tests only
#                FUZZ seal_fuzz.cc)
#
# Headers are included as "identity/seal.h". Each module sees only its own directory and those of
# its declared dependencies, so an undeclared include fails the build. Every X_test.cc becomes one
# test program X_test, labelled with the module's name, linked against the module and its declared
# dependencies only. Every X_fuzz.cc becomes a libFuzzer program in the preset `fuzz`, and elsewhere,
# if test/corpus/X_fuzz exists, a test X_fuzz_replay. With BATON_CHECK_HEADERS each header is compiled alone.

function(_baton_include_root MODULE OUT)
  set(root ${CMAKE_BINARY_DIR}/inc/${MODULE})
  file(MAKE_DIRECTORY ${root})
  if(NOT EXISTS ${root}/${MODULE})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${MODULE} ${root}/${MODULE} SYMBOLIC)
  endif()
  set(${OUT} ${root} PARENT_SCOPE)
endfunction()

# UCX patches mmap and its kin to watch memory, and ThreadSanitizer's interceptors crash on that.
# Nothing of ours needs the watch: UCX does without its registration cache then. What it cannot see
# in libraries that are built without it: test/tsan.supp.
set(BATON_TEST_ENVIRONMENT)
if("${CMAKE_CXX_FLAGS_DEBUG}" MATCHES "fsanitize=thread")
  set(BATON_TEST_ENVIRONMENT "UCX_MEM_EVENTS=n"
                             "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/test/tsan.supp")
endif()

# Adds one GoogleTest program. LABEL, or several as "A;B", groups it for `ctest -L`. OPTIONAL: where
# all of its tests skipped themselves, ctest says "Skipped" and not "Passed".
function(baton_test NAME)
  cmake_parse_arguments(PARSE_ARGV 1 T "OPTIONAL" "LABEL;TIMEOUT" "SRCS;DEPS")
  add_executable(${NAME} ${T_SRCS})
  target_link_libraries(${NAME} PRIVATE ${T_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${NAME} PRIVATE BATON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${NAME} COMMAND ${NAME})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  if("${CMAKE_CXX_FLAGS_DEBUG}" MATCHES "fsanitize")  # several times slower
    math(EXPR T_TIMEOUT "4 * ${T_TIMEOUT}")
  endif()
  set_tests_properties(${NAME} PROPERTIES LABELS "${T_LABEL}" TIMEOUT ${T_TIMEOUT}
                       ENVIRONMENT "${BATON_TEST_ENVIRONMENT}")
  if(T_OPTIONAL)
    # GoogleTest's last lines: none passed, and then nothing but the names of the skipped. A failure
    # or a sanitizer's report behind them does not match, which matters, for a match outranks the
    # exit code. A dot stands for a bracket, which CMake's lists would take for their own.
    set_tests_properties(${NAME} PROPERTIES SKIP_REGULAR_EXPRESSION
                         "PASSED  . 0 tests.\n(.  SKIPPED . [^\n]*\n?)+$")
  endif()
endfunction()

function(baton_module)
  cmake_parse_arguments(M "" "NAME"
                        "HDRS;SRCS;DEPS;LIBS;TESTS;OPTIONAL_TESTS;TEST_DEPS;FUZZ" ${ARGN})
  set(target baton_${M_NAME})
  _baton_include_root(${M_NAME} root)

  if(M_SRCS)
    add_library(${target} STATIC ${M_SRCS})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${root})
  foreach(dep ${M_DEPS})
    target_link_libraries(${target} ${scope} baton_${dep})
  endforeach()
  target_link_libraries(${target} ${scope} ${M_LIBS})

  if(BATON_CHECK_HEADERS AND M_HDRS)
    set(probes)
    foreach(hdr ${M_HDRS})
      string(MAKE_C_IDENTIFIER ${hdr} id)
      set(probe ${CMAKE_CURRENT_BINARY_DIR}/header_${id}.cc)
      file(GENERATE OUTPUT ${probe} CONTENT "#include \"${M_NAME}/${hdr}\"\n")
      list(APPEND probes ${probe})
    endforeach()
    add_library(${target}_headers OBJECT ${probes})
    target_link_libraries(${target}_headers PRIVATE ${target})
  endif()

  if(BATON_TESTS)
    foreach(src ${M_TESTS} ${M_OPTIONAL_TESTS})
      get_filename_component(test ${src} NAME_WE)
      set(optional)
      if(src IN_LIST M_OPTIONAL_TESTS)
        set(optional OPTIONAL)
      endif()
      set(deps ${target})
      foreach(dep ${M_TEST_DEPS})
        if(TARGET baton_${dep})
          list(APPEND deps baton_${dep})
        else()
          list(APPEND deps ${dep})
        endif()
      endforeach()
      baton_test(${test} ${optional} SRCS ${src} DEPS ${deps} LABEL ${M_NAME})
    endforeach()
    # What fuzzing has found is run in every build, with mutations of it; libFuzzer is not needed.
    foreach(src ${M_FUZZ})
      get_filename_component(fuzz ${src} NAME_WE)
      set(corpus ${CMAKE_SOURCE_DIR}/test/corpus/${fuzz})
      if(EXISTS ${corpus})
        add_executable(${fuzz}_replay ${src} ${CMAKE_SOURCE_DIR}/test/corpus/replay.cc)
        target_link_libraries(${fuzz}_replay PRIVATE ${target})
        target_compile_definitions(${fuzz}_replay PRIVATE BATON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
        add_test(NAME ${fuzz}_replay COMMAND ${fuzz}_replay ${corpus} 1000)
        set_tests_properties(${fuzz}_replay PROPERTIES LABELS "${M_NAME};corpus" TIMEOUT 300)
      endif()
    endforeach()
  endif()

  if(BATON_FUZZ)
    foreach(src ${M_FUZZ})
      get_filename_component(fuzz ${src} NAME_WE)
      add_executable(${fuzz} ${src})
      target_compile_options(${fuzz} PRIVATE -fsanitize=fuzzer)
      target_link_options(${fuzz} PRIVATE -fsanitize=fuzzer)
      target_link_libraries(${fuzz} PRIVATE ${target})
      target_compile_definitions(${fuzz} PRIVATE BATON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    endforeach()
  endif()
endfunction()
