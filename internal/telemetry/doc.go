// Package telemetry tells of a run to programs that watch it.
package telemetry
