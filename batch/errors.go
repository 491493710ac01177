package batch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/fault"
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
func (e *OtherInputError) Hint() string { return "use another output" }

// FaultCode is the code of the error in the catalogue of errors.
func (e *OtherInputError) FaultCode() string { return fault.Output }

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
	switch {
	case outOfFiles(e.Err):
		return "raise the limit of open files with ulimit -n 4096, or lower --concurrency, then resume with the same command"
	case strings.HasPrefix(e.Provider, upstreamPrefix):
		return "check the network and the field base_url of the upstreams, then resume with the same command"
	}
	return "check the network and --base-url, then resume with the same command"
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *UnreachableError) FaultCode() string {
	if outOfFiles(e.Err) {
		return fault.OpenFiles
	}
	return fault.Unreachable
}

// FieldError names the invalid field of a Config.
type FieldError = fault.FieldError

// inputFault is an error of reading standard input: one that is the fault of what was given says so.
func inputFault(err error) error {
	if _, ok := errors.AsType[*DamagedError](err); ok {
		return &FieldError{Field: "Input", Err: err}
	}
	return err
}

var (
	errMissing = errors.New("is missing")
	errUnknown = errors.New("is not one of the allowed values")
)
