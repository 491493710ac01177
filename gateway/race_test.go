//go:build race

package gateway_test

// raceEnabled is whether the race detector is on, under which everything takes ten times as long and gigabytes of memory.
const raceEnabled = true
