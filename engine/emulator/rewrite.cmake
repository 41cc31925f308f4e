# Writes FROM, CUDA C++, as C++ to TO: kernel<<<a, b, c, d>>>(arguments); becomes a call of the
# emulator's launch(), with the kernel's call and its arguments in function objects. Kernels begin with a macro by which
# a launch learns their name.
file(READ "${FROM}" text)
string(REGEX REPLACE "([^;{}]*)<<<([^;{}]*)>>>\\(([^;{}]*)\\);"
  "::rematch::emulator::launch(\\2, [=] {\\1(\\3); }, [=]() { return ::rematch::emulator::arguments_of(\\3); });" text "${text}")
string(REGEX REPLACE "(__global__[^;{}]*){" "\\1{ REMATCH_EMULATED_KERNEL" text "${text}")
# A condition before the kernel's name would move into the function object, and launch regardless.
if(text MATCHES "\\[=\\] {[^{}]*[^A-Za-z_](if|for|while|else|return)[ (]")
  message(FATAL_ERROR "${FROM}: a launch behind ${CMAKE_MATCH_1}; put it into braces")
endif()
if(text MATCHES "<<<")
  message(FATAL_ERROR "${FROM}: a launch that is not understood; write it as a statement of its own")
endif()
file(WRITE "${TO}" "#line 1 \"${FROM}\"\n${text}")
