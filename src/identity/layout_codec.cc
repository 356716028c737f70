#include "identity/layout.h"
