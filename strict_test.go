//go:build !bugs

package sluice_test

// strict looks for what is known to fail, too: see bugs_test.go.
const strict = false
