/* cmocka_test.h - cmocka with the headers it expects before it. */
#ifndef TOCSIN_CMOCKA_TEST_H
#define TOCSIN_CMOCKA_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
