// Package telemetry turns the events of Schedulers and Runners into what people and other programs look at: a file of JSON
// lines, metrics, and the report of a run.
//
// A Log writes events as JSON lines. An Aggregate takes events in, while they
// happen or from a file, and the results of a batch, in memory that does not grow with their number; its Report is one
// document for JSON, for a terminal and for a page with charts. Metrics and spans go to programs that watch a run.
//
// All of it is fed by sluice.Event alone, so that whatever uses a Scheduler can be watched in the same way.
package telemetry
