# Run at build time: writes OUTPUT with the commit and whether tracked files differ from it. What
# git cannot say is what the build was told, or unknown, which is not the same as clean. The file is
# touched only when its content changes.
set(commit "nullptr")
set(dirty "-1")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit "\"${head}\"")
    execute_process(
      COMMAND ${GIT} --no-optional-locks -C ${SOURCE_DIR} status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
      if(changes STREQUAL "")
        set(dirty "0")
      else()
        set(dirty "1")
      endif()
    endif()
  endif()
endif()
if(commit STREQUAL "nullptr" AND GIVEN_COMMIT MATCHES "^[0-9a-f]+$")
  set(commit "\"${GIVEN_COMMIT}\"")
  if(GIVEN_DIRTY MATCHES "^[01]$")
    set(dirty "${GIVEN_DIRTY}")
  endif()
endif()

string(REPLACE "\\" "\\\\" flags "${FLAGS}")
string(REPLACE "\"" "\\\"" flags "${flags}")
set(content "// Generated at build time.
#pragma once

namespace rlk::server {

// Null and -1: unknown.
inline constexpr const char* kGitCommit = ${commit};
inline constexpr int kGitDirty = ${dirty};
inline constexpr const char* kVersion = \"${VERSION}\";
inline constexpr const char* kCompiler = \"${COMPILER}\";
inline constexpr const char* kCompileFlags = \"${flags}\";
inline constexpr const char* kCudaArchitectures = \"${CUDA_ARCHITECTURES}\";

}  // namespace rlk::server
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL content)
  file(WRITE ${OUTPUT} "${content}")
endif()
