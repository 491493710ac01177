package batch

import (
	"errors"
	"fmt"

	"github.com/sluice-llm/sluice/internal/rows"
)

// InputError is a line of the input that cannot be run.
type InputError = rows.Error

// DamagedError is returned for a compressed input that is cut short or damaged.
type DamagedError = rows.DamagedError

// UnpackError is returned when there is no room for what a compressed input holds.
type UnpackError = rows.UnpackError

// InputErrors is returned by Open for a file with bad lines.
type InputErrors = rows.Errors

// ChangedError is returned when custom_ids of the input are recorded in the output for other requests.
type ChangedError = rows.ChangedError

// OtherInputError is returned when no custom_id of the input is in the output, although that has lines.
type OtherInputError struct {
	Input, Output string
	Lines         int // of the output
}

// Error says that the two do not belong together.
func (e *OtherInputError) Error() string {
	return fmt.Sprintf("%s contains %d results, but none of them is for an item of %s", e.Output, e.Lines, e.Input)
}

// Hint says what can be done.
func (e *OtherInputError) Hint() string { return "use another output file" }

// UnreachableError is returned by a run whose first calls never reached a provider, or that this host had no room for: then
// it unwraps to syscall.EMFILE or ENFILE. Nothing is recorded of those calls; what came of others is.
type UnreachableError struct {
	Provider string // or which upstream
	BaseURL  string
	Recorded int // results of this run
	Err      error
}

// Error names the address.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s at %s cannot be reached: %v", e.Provider, e.BaseURL, e.Err)
}

// Unwrap returns what the network said.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Hint says what can be done.
func (e *UnreachableError) Hint() string {
	what, kept := "check the base URL and the network", "nothing was recorded"
	if outOfFiles(e.Err) {
		what = "raise the limit of open files with ulimit -n, or lower --concurrency"
	}
	if e.Recorded > 0 {
		kept = "the recorded results are kept"
	}
	return what + "; " + kept
}

// ConfigError names a field of Config that is wrong.
type ConfigError struct {
	Field string
	Err   error
}

// Error names the field.
func (e *ConfigError) Error() string { return fmt.Sprintf("batch: %s: %v", e.Field, e.Err) }

// Unwrap returns what is wrong with it.
func (e *ConfigError) Unwrap() error { return e.Err }

// inputFault is an error of reading standard input: one that is the fault of what was given says so.
func inputFault(err error) error {
	if _, ok := errors.AsType[*DamagedError](err); ok {
		return &ConfigError{Field: "Input", Err: err}
	}
	return err
}

var (
	errMissing = errors.New("is missing")
	errUnknown = errors.New("is not one of the allowed values")
)
