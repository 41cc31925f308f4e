# Writes FROM, CUDA C++, as C++ to TO: kernel<<<a, b, c, d>>>(arguments); becomes a call of the
# emulator's launch(), with the kernel's call and its arguments in a function object.
file(READ "${FROM}" text)
string(REGEX REPLACE "([^;{}]*)<<<([^;{}]*)>>>\\(([^;{}]*)\\);"
  "::rematch::emulator::launch(\\2, [=] {\\1(\\3); });" text "${text}")
if(text MATCHES "<<<")
  message(FATAL_ERROR "${FROM}: a launch that is not understood; write it as a statement of its own")
endif()
file(WRITE "${TO}" "#line 1 \"${FROM}\"\n${text}")
