#include "memory/pool_core.h"
