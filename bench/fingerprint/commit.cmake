# Writes the commit of the source tree into a header, when it has changed.
execute_process(COMMAND git -C "${SOURCE}" rev-parse HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
execute_process(COMMAND git -C "${SOURCE}" status --porcelain --untracked-files=no
  OUTPUT_VARIABLE changes ERROR_QUIET)
if(failed)
  set(commit unknown)
endif()
set(dirty no)
if(changes)
  set(dirty yes)
endif()
set(text "#pragma once\n#define REMATCH_COMMIT \"${commit}\"\n#define REMATCH_DIRTY \"${dirty}\"\n")
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "${text}" @ONLY)
