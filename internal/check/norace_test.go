//go:build !race

package check_test

const every = 1
