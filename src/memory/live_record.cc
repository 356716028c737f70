#include "memory/live_record.h"
