#include "engine/ambient/ambient.h"

namespace rematch {

Ambient& ambient() {
  thread_local Ambient instance;
  return instance;
}

}  // namespace rematch
