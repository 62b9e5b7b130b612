/* tocsin/version.h - the version of Tocsin (CMakeLists.txt says the same; a test compares them). */
#ifndef TOCSIN_VERSION_H
#define TOCSIN_VERSION_H

#define TOCSIN_VERSION "0.1.0"

#endif
