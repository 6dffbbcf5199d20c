//go:build race

package check_test

// One fixture of every so many is checked. The race detector makes a check eight times as slow and finds the
// same in each, so that make test checks all of them without it, and some with it.
const every = 8
