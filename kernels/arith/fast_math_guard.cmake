# Refuses compiler flags that change bits.
#
# A macro cannot see fast math: nvcc defines none, and flags appended by the environment win
# silently. So the flags themselves are read: CMake's variables and directory options, the
# environment, and the response files that they name. It runs when the build is configured and,
# through the target of rlk_fast_math_guard_target(), in every build:
#
#   cmake -DRLK_GUARD_INPUT=<file with set(...) calls> -P fast_math_guard.cmake
#
# Flags may be quoted as for a shell, separated by blanks or `;`, grouped with commas behind
# -Xcompiler, and carry one or two dashes. What cannot be read is refused.

cmake_policy(PUSH)
cmake_policy(VERSION 3.25)

set(RLK_GUARD_ENVIRONMENT
    CXXFLAGS CFLAGS CPPFLAGS LDFLAGS CUDAFLAGS NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS
    TORCH_NVCC_FLAGS)
set(RLK_GUARD_DEPTH_MAX 8)

# Flags without a value, as they stand behind the dashes.
#   -march=native does not change the bits of our code (contraction is off), but the base files would
#   no longer run on the CPUs that they are for; instruction sets are chosen at run time.
set(RLK_GUARD_REFUSED
    "^ffast-math$"
    "^Ofast$"
    "^optimize=fast$"
    "^funsafe-math-optimizations$"
    "^menable-unsafe-fp-math$"
    "^fassociative-math$"
    "^freciprocal-math$"
    "^ffinite-math-only$"
    "^fno-honor-nans$"
    "^fno-honor-infinities$"
    "^fno-signed-zeros$"
    "^fapprox-func$"
    "^fsingle-precision-constant$"
    "^ffp-contract=(fast|on|fast-honor-pragmas)$"
    "^ffp-model=(fast|aggressive|precise)$"
    "^fp-model=(fast.*|precise)$"
    "^fdenormal-fp-math(-f32)?=(preserve-sign|positive-zero|dynamic).*$"
    "^ffp-eval-method=(extended|double)$"
    "^mrecip(=.*)?$"
    "^mdaz-ftz$"
    "^mfpmath=.*387.*$"
    "^mfpmath=both$"
    "^mno-sse2?$"
    "^march=native$"
    "^use_fast_math(=(true|1))?$"
    "^ftz=(true|1)$"
    "^prec-div=(false|0)$"
    "^prec-sqrt=(false|0)$"
    "^fmad=(true|1)$")
# nvcc takes these values as the next word too.
set(RLK_GUARD_SPLIT_VALUE "^(ftz|prec-div|prec-sqrt|fmad|use_fast_math)$")
# A value that follows, or follows "=", is itself a list of flags.
set(RLK_GUARD_FORWARDING
    "^(Xcompiler|compiler-options|Xlinker|linker-options|Xptxas|ptxas-options|Xnvvm|Xclang|Xarch_host|Xarch_device|Xcudafe|Xarchive|archive-options)=(.*)$")

# Stops, naming the flag and where it came from.
function(rlk_guard_refuse flag origin why)
  message(FATAL_ERROR "rlk: ${flag} from ${origin} is refused: ${why}")
endfunction()

# Splits `text` like a shell, also on `;`, into the list `out`; `ok` is false for a quote that is not
# closed or a backslash at the end.
function(rlk_guard_split text out ok)
  string(REPLACE ";" " " rest "${text}")
  # Brackets would join list elements; no flag that matters has one.
  string(REGEX REPLACE "[][]" "_" rest "${rest}")
  set(tokens "")
  set(token "")
  set(open FALSE)
  while(NOT rest STREQUAL "")
    if(rest MATCHES "^[ \t\r\n]+")
      if(open)
        list(APPEND tokens "${token}")
      endif()
      set(token "")
      set(open FALSE)
    elseif(rest MATCHES "^'([^']*)'")
      string(APPEND token "${CMAKE_MATCH_1}")
      set(open TRUE)
    elseif(rest MATCHES "^([^ \t\r\n'\"\\]+)")
      string(APPEND token "${CMAKE_MATCH_1}")
      set(open TRUE)
    elseif(rest MATCHES "^\"(([^\"\\]|\\\\.)*)\"")
      string(REGEX REPLACE "\\\\(.)" "\\1" inner "${CMAKE_MATCH_1}")
      # The regex replacement has clobbered the match of the whole.
      string(REGEX MATCH "^\"(([^\"\\]|\\\\.)*)\"" whole "${rest}")
      string(APPEND token "${inner}")
      set(open TRUE)
      string(LENGTH "${whole}" length)
      string(SUBSTRING "${rest}" ${length} -1 rest)
      continue()
    elseif(rest MATCHES "^\\\\(.)")
      string(APPEND token "${CMAKE_MATCH_1}")
      set(open TRUE)
    else()
      set(${out} "" PARENT_SCOPE)
      set(${ok} FALSE PARENT_SCOPE)
      return()
    endif()
    string(LENGTH "${CMAKE_MATCH_0}" length)
    string(SUBSTRING "${rest}" ${length} -1 rest)
  endwhile()
  if(open)
    list(APPEND tokens "${token}")
  endif()
  set(${out} "${tokens}" PARENT_SCOPE)
  set(${ok} TRUE PARENT_SCOPE)
endfunction()

# Reads a response file and checks what is in it.
function(rlk_guard_response_file path origin depth)
  if(depth GREATER RLK_GUARD_DEPTH_MAX)
    rlk_guard_refuse("@${path}" "${origin}"
                     "response files nest deeper than ${RLK_GUARD_DEPTH_MAX}")
  endif()
  if(NOT IS_ABSOLUTE "${path}")
    set(path "${RLK_GUARD_WORKING_DIRECTORY}/${path}")
  endif()
  set(text "")
  set(readable FALSE)
  if(EXISTS "${path}" AND NOT IS_DIRECTORY "${path}")
    # A process, because file(READ) ends the script where a file cannot be read.
    execute_process(COMMAND "${CMAKE_COMMAND}" -E cat "${path}" OUTPUT_VARIABLE text
                    RESULT_VARIABLE result ERROR_QUIET)
    if(result EQUAL 0)
      set(readable TRUE)
    endif()
  endif()
  if(NOT readable)
    rlk_guard_refuse("the response file ${path}" "${origin}" "it cannot be read")
  endif()
  rlk_guard_check("${text}" "the response file ${path} (${origin})" ${depth})
endfunction()

# Checks one word.
function(rlk_guard_check_word word origin depth)
  if(word MATCHES "^@(.+)$")
    math(EXPR deeper "${depth} + 1")
    rlk_guard_response_file("${CMAKE_MATCH_1}" "${origin}" ${deeper})
    return()
  endif()
  if(NOT word MATCHES "^--?([^-].*)$")
    return()
  endif()
  string(REGEX REPLACE "^--?" "" bare "${word}")
  foreach(pattern IN LISTS RLK_GUARD_REFUSED)
    if(bare MATCHES "${pattern}")
      rlk_guard_refuse("${word}" "${origin}" "it changes bits or the CPUs that the build runs on")
    endif()
  endforeach()
endfunction()

# Checks a text of flags.
function(rlk_guard_check text origin depth)
  rlk_guard_split("${text}" words ok)
  if(NOT ok)
    rlk_guard_refuse("\"${text}\"" "${origin}" "its quoting cannot be parsed")
  endif()
  set(pending "")
  foreach(word IN LISTS words)
    string(REGEX REPLACE "^--?" "" bare "${word}")
    if(pending STREQUAL "file")
      set(pending "")
      string(REPLACE "," ";" files "${word}")
      foreach(file IN LISTS files)
        rlk_guard_check_word("@${file}" "${origin}" ${depth})
      endforeach()
      continue()
    endif()
    if(pending)
      # "-ftz true" is "-ftz=true".
      rlk_guard_check_word("-${pending}=${word}" "${origin}" ${depth})
      set(pending "")
    endif()
    if(word MATCHES "^--?(options-file|optf)$")
      set(pending "file")
      continue()
    endif()
    if(word MATCHES "^--?(options-file|optf)=(.*)$")
      string(REPLACE "," ";" files "${CMAKE_MATCH_2}")
      foreach(file IN LISTS files)
        rlk_guard_check_word("@${file}" "${origin}" ${depth})
      endforeach()
      continue()
    endif()
    if(word MATCHES "^-" AND bare MATCHES "${RLK_GUARD_SPLIT_VALUE}")
      set(pending "${bare}")
    endif()
    if(word MATCHES "^-" AND bare MATCHES "${RLK_GUARD_FORWARDING}")
      set(word "${CMAKE_MATCH_2}")
    endif()
    # Grouped flags: "-Xcompiler=-O3,-ffast-math", "-Wl,..." and a quoted group with blanks.
    string(REGEX REPLACE "[, \t\r\n]+" ";" pieces "${word}")
    foreach(piece IN LISTS pieces)
      rlk_guard_check_word("${piece}" "${origin}" ${depth})
    endforeach()
  endforeach()
  if(pending STREQUAL "file")
    rlk_guard_refuse("--options-file" "${origin}" "its file name is missing")
  endif()
endfunction()

# Checks the environment and every RLK_GUARD_FLAGS_<name> variable, named RLK_GUARD_NAMES.
function(rlk_guard_run)
  if(NOT RLK_GUARD_WORKING_DIRECTORY)
    set(RLK_GUARD_WORKING_DIRECTORY "${CMAKE_BINARY_DIR}")
  endif()
  foreach(name IN LISTS RLK_GUARD_NAMES)
    rlk_guard_check("${RLK_GUARD_FLAGS_${name}}" "${name}" 0)
  endforeach()
  foreach(name IN LISTS RLK_GUARD_ENVIRONMENT)
    if(DEFINED ENV{${name}})
      rlk_guard_check("$ENV{${name}}" "the environment variable ${name}" 0)
    endif()
  endforeach()
endfunction()

# Checks this build now, and adds the target `name` that checks it again whenever it builds.
function(rlk_fast_math_guard_target name)
  get_cmake_property(variables VARIABLES)
  set(RLK_GUARD_NAMES "")
  set(input "")
  foreach(variable IN LISTS variables)
    if(variable MATCHES "^CMAKE_(C|CXX|CUDA)_FLAGS(_|$)" OR variable MATCHES
                                                            "^CMAKE_(EXE|SHARED|MODULE)_LINKER_FLAGS")
      if(NOT "${${variable}}" STREQUAL "")
        list(APPEND RLK_GUARD_NAMES ${variable})
        set(RLK_GUARD_FLAGS_${variable} "${${variable}}")
      endif()
    endif()
  endforeach()
  get_directory_property(RLK_GUARD_FLAGS_COMPILE_OPTIONS COMPILE_OPTIONS)
  list(APPEND RLK_GUARD_NAMES COMPILE_OPTIONS)
  string(APPEND input "set(RLK_GUARD_NAMES \"${RLK_GUARD_NAMES}\")\n")
  string(APPEND input "set(RLK_GUARD_WORKING_DIRECTORY [==[${CMAKE_BINARY_DIR}]==])\n")
  foreach(variable IN LISTS RLK_GUARD_NAMES)
    string(APPEND input "set(RLK_GUARD_FLAGS_${variable} [==[${RLK_GUARD_FLAGS_${variable}}]==])\n")
  endforeach()
  set(RLK_GUARD_WORKING_DIRECTORY "${CMAKE_BINARY_DIR}")
  rlk_guard_run()
  set(file "${CMAKE_CURRENT_BINARY_DIR}/fast_math_guard_input.cmake")
  file(WRITE "${file}" "${input}")
  add_custom_target(
    ${name}
    COMMAND ${CMAKE_COMMAND} "-DRLK_GUARD_INPUT=${file}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_FILE}"
    COMMENT "Checking compiler flags for fast math"
    VERBATIM)
endfunction()

cmake_policy(POP)

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  if(RLK_GUARD_INPUT)
    include("${RLK_GUARD_INPUT}")
  endif()
  rlk_guard_run()
endif()
