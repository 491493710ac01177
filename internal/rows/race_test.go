//go:build race

package rows_test

const raceEnabled = true
