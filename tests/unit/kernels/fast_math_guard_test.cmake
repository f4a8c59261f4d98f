# cmake -DGUARD=<fast_math_guard.cmake> -DWORK=<scratch folder> -P fast_math_guard_test.cmake
#
# Runs the guard as a script with one source of flags at a time. Each row: what is expected, where
# the flags stand (an environment variable, or a CMake variable), the flags. A refusal must name the
# flag and its origin.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
file(WRITE "${WORK}/clean.rsp" "-O3 -g\n-DNAME=\"a b\"\n")
file(WRITE "${WORK}/fast.rsp" "-O3\n-ffast-math\n")
file(WRITE "${WORK}/outer.rsp" "-O2 @${WORK}/inner.rsp\n")
file(WRITE "${WORK}/inner.rsp" "--use_fast_math\n")
file(WRITE "${WORK}/loop.rsp" "@${WORK}/loop.rsp\n")
file(WRITE "${WORK}/quote.rsp" "-DX='open\n")

set(failures 0)
set(cases 0)

# refuse|accept, origin (env:NAME or var:NAME), flags, text that the message must have (the flag).
function(guard_case expected origin flags names)
  math(EXPR cases "${cases} + 1")
  set(cases ${cases} PARENT_SCOPE)
  string(REGEX REPLACE "^(env|var):" "" name "${origin}")
  set(unset_environment "")
  foreach(variable CXXFLAGS CFLAGS CPPFLAGS LDFLAGS CUDAFLAGS NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS
                   TORCH_NVCC_FLAGS)
    list(APPEND unset_environment --unset=${variable})
  endforeach()
  if(origin MATCHES "^env:")
    file(WRITE "${WORK}/input.cmake" "set(RLK_GUARD_WORKING_DIRECTORY [==[${WORK}]==])\n"
                                     "set(ENV{${name}} [==[${flags}]==])\n")
  else()
    file(WRITE "${WORK}/input.cmake"
         "set(RLK_GUARD_WORKING_DIRECTORY [==[${WORK}]==])\nset(RLK_GUARD_NAMES ${name})\n"
         "set(RLK_GUARD_FLAGS_${name} [==[${flags}]==])\n")
  endif()
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env ${unset_environment} ${CMAKE_COMMAND}
            "-DRLK_GUARD_INPUT=${WORK}/input.cmake" -P "${GUARD}"
    RESULT_VARIABLE result ERROR_VARIABLE error OUTPUT_QUIET)
  set(got accept)
  if(NOT result EQUAL 0)
    set(got refuse)
  endif()
  # CMake wraps long messages.
  string(REGEX REPLACE "[ \t\r\n]+" " " error "${error}")
  set(problem "")
  if(NOT got STREQUAL expected)
    set(problem "expected ${expected}, got ${got}")
  elseif(got STREQUAL "refuse")
    foreach(needed IN ITEMS "rlk: " "${names}" "${name}")
      string(FIND "${error}" "${needed}" at)
      if(at EQUAL -1)
        set(problem "the message does not name ${needed}")
      endif()
    endforeach()
  endif()
  if(problem)
    message(STATUS "FAIL ${origin} '${flags}': ${problem}\n${error}")
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
  endif()
endfunction()

# Each spelling, alone.
foreach(flag -ffast-math -Ofast -funsafe-math-optimizations -fassociative-math -freciprocal-math
             -ffinite-math-only -fno-signed-zeros -ffp-contract=fast -ffp-contract=on
             -fsingle-precision-constant -mrecip -mrecip=all -mfpmath=387 -mfpmath=both -mno-sse
             -march=native -mdaz-ftz -fapprox-func -fdenormal-fp-math=preserve-sign
             -ffp-model=fast -use_fast_math --use_fast_math --use_fast_math=true -use_fast_math=1
             -ftz=true --ftz=true -ftz=1 -prec-div=false --prec-div=0 -prec-sqrt=false
             --prec-sqrt=0 -fmad=true --fmad=1)
  guard_case(refuse var:CMAKE_CXX_FLAGS "-O3 ${flag} -g" "${flag}")
  guard_case(refuse env:NVCC_APPEND_FLAGS "${flag}" "${flag}")
endforeach()

# Each origin.
foreach(name CXXFLAGS CFLAGS CPPFLAGS LDFLAGS CUDAFLAGS NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS
             TORCH_NVCC_FLAGS)
  guard_case(refuse env:${name} "-ffast-math" "-ffast-math")
  guard_case(accept env:${name} "-O2 -g -Wall" "")
endforeach()
foreach(name CMAKE_CXX_FLAGS CMAKE_CXX_FLAGS_RELEASE CMAKE_CUDA_FLAGS CMAKE_CUDA_FLAGS_DEBUG)
  guard_case(refuse var:${name} "--use_fast_math" "--use_fast_math")
endforeach()

# Quoting, separators, groups, values behind a blank.
guard_case(refuse env:CXXFLAGS "'-ffast-math'" "-ffast-math")
guard_case(refuse env:CXXFLAGS "\"-ffast-math\"" "-ffast-math")
guard_case(refuse env:CXXFLAGS "-f\"fast\"-'math'" "-ffast-math")
guard_case(refuse env:CXXFLAGS "-ffast\\-math" "-ffast-math")
guard_case(refuse env:TORCH_NVCC_FLAGS "-O3;--use_fast_math" "--use_fast_math")
guard_case(refuse env:NVCC_APPEND_FLAGS "-ftz true" "-ftz=true")
guard_case(refuse env:NVCC_APPEND_FLAGS "--prec-div false" "-prec-div=false")
guard_case(refuse env:NVCC_APPEND_FLAGS "-Xcompiler -ffast-math" "-ffast-math")
guard_case(refuse env:NVCC_APPEND_FLAGS "-Xcompiler=-O3,-ffast-math" "-ffast-math")
guard_case(refuse env:NVCC_APPEND_FLAGS "--compiler-options '-O3 -ffast-math'" "-ffast-math")
guard_case(refuse env:NVCC_APPEND_FLAGS "-Xptxas=--fmad=true" "--fmad=true")

# Response files.
guard_case(refuse env:CXXFLAGS "@${WORK}/fast.rsp" "-ffast-math")
guard_case(refuse env:CXXFLAGS "@fast.rsp" "-ffast-math")
guard_case(refuse env:CXXFLAGS "@${WORK}/outer.rsp" "--use_fast_math")
guard_case(refuse env:CXXFLAGS "@${WORK}/loop.rsp" "nest deeper")
guard_case(refuse env:CXXFLAGS "@${WORK}/quote.rsp" "cannot be parsed")
guard_case(refuse env:CXXFLAGS "@${WORK}/missing.rsp" "cannot be read")
guard_case(refuse env:CXXFLAGS "@${WORK}" "cannot be read")
guard_case(refuse env:NVCC_PREPEND_FLAGS "--options-file ${WORK}/fast.rsp" "-ffast-math")
guard_case(refuse env:NVCC_PREPEND_FLAGS "--options-file=${WORK}/fast.rsp" "-ffast-math")
guard_case(refuse env:NVCC_PREPEND_FLAGS "-optf ${WORK}/clean.rsp,${WORK}/fast.rsp" "-ffast-math")
guard_case(refuse env:NVCC_PREPEND_FLAGS "-optf" "missing")
guard_case(accept env:CXXFLAGS "@${WORK}/clean.rsp" "")
guard_case(accept env:NVCC_PREPEND_FLAGS "-optf ${WORK}/clean.rsp" "")

# What cannot be parsed.
guard_case(refuse env:CXXFLAGS "-DX=\"open" "cannot be parsed")
guard_case(refuse env:CXXFLAGS "-DX='open" "cannot be parsed")
guard_case(refuse env:CXXFLAGS "-O2 \\" "cannot be parsed")

# What must pass: neighbours of the refused spellings, and usual flags of a distribution.
foreach(flags "-O3 -g0" "-O2" "-ffp-contract=off" "-fno-rounding-math" "-frounding-math"
              "-fno-fast-math" "-fno-math-errno -fno-trapping-math" "-mfma" "-march=x86-64-v3"
              "-mtune=native" "-ftz=false" "--fmad=false" "-prec-div=true -prec-sqrt=1"
              "-ftz false" "--use_fast_math=false" "-fsigned-zeros" "-DFLAG=-ffast-math-docs"
              "-I/opt/Ofast" "-DNAME='a b'" "-Wl,-z,relro -Wl,-z,now" "-specs=/usr/share/x.specs"
              "-Wp,-D_FORTIFY_SOURCE=2 -fstack-protector-strong" "-ffile-prefix-map=/a b=." "")
  guard_case(accept var:CMAKE_CXX_FLAGS "${flags}" "")
endforeach()

if(failures GREATER 0)
  message(FATAL_ERROR "${failures} of ${cases} cases failed")
endif()
message(STATUS "${cases} cases passed")
