// Package fault has the errors that end the program: a stable code, the exit code, the cause and a hint.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Exit codes.
const (
	ExitDone        = 0   // everything was done
	ExitFailed      = 1   // the command could not run, or could not finish
	ExitUsage       = 2   // wrong flags, settings or input
	ExitItems       = 3   // finished, but some items failed
	ExitThreshold   = 4   // a plan exceeds its bounds, or a measurement missed its threshold
	ExitCap         = 5   // stopped by a cap
	ExitInterrupted = 130 // stopped by a signal
)

// Error is an error with its code, and with a hint.
type Error struct {
	Code Code
	Err  error
	Hint string // what the user can do; "": the catalogue says
	List bool   // the text has one line per fault
}

// Error returns the text for people.
func (e *Error) Error() string { return plain(e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Exit returns the exit code.
func (e *Error) Exit() int { return EntryOf(e.Code).Exit }

// Advice returns the hint of the error, or that of the catalogue.
func (e *Error) Advice() string { return cmp.Or(e.Hint, EntryOf(e.Code).Fix) }

// New returns an error with a code and a hint.
func New(code Code, err error, hint string, args ...any) error {
	return &Error{Code: code, Err: err, Hint: fmt.Sprintf(hint, args...)}
}

// Exit is an error that ends the program with an exit code, without a message.
type Exit int

// Error returns the exit code as text.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Of returns err as an Error: as it is if it is one, otherwise with the code and the hint that it carries, as below.
//
// An error carries its code with a method FaultCode() string, and its hint with a method Hint() string. Without a code, the cause decides:
// the end of a context, a full disk, a file. Otherwise the code is [Failed].
func Of(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Code: cmp.Or(CodeOf(err), Failed), Err: err, Hint: HintOf(err)}
	switch {
	case e.Code == Interrupted, e.Code == Failed && errors.Is(err, context.Canceled):
		e.Code, e.Err = Interrupted, errors.New("interrupted")
	case e.Code != Failed:
		e.List = e.Code == Input || e.Code == Changed || e.Code == Blocked
	case DiskFull(err):
		e.Code = Disk
	case errors.Is(err, syscall.EPIPE): // the reader of standard output ended
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		e.Code = OpenFiles
	case Is[*fs.PathError](err), Is[*os.LinkError](err):
		e.Code = File
	}
	return e
}

// CodeOf returns the code that an error carries; "" if it carries none.
func CodeOf(err error) Code {
	var coded interface {
		error
		FaultCode() string
	}
	if errors.As(err, &coded) {
		return coded.FaultCode()
	}
	return ""
}

// DiskFull reports whether a write failed because of a full disk, a quota, or the maximum size of a file.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG) || errors.Is(err, syscall.EDQUOT)
}

// Say replaces phrases of the hint, such as "another output", by their form for one command.
func (e *Error) Say(phrases ...string) *Error {
	e.Hint = strings.NewReplacer(phrases...).Replace(e.Advice())
	return e
}

// HintOf returns the hint that an error carries with a method Hint() string.
func HintOf(err error) string {
	var hinting interface {
		error
		Hint() string
	}
	if errors.As(err, &hinting) {
		return hinting.Hint()
	}
	return ""
}

// Is reports whether err is, or wraps, an error of a type.
func Is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Outcome returns the outcome of a run that ended with this error, as its summary has it.
func (e *Error) Outcome() string {
	switch e.Exit() {
	case ExitInterrupted:
		return "interrupted"
	case ExitCap:
		return "stopped"
	case ExitItems:
		return "items_failed"
	}
	return "failed"
}

// FieldError is the error of an invalid field of a library's Config. A command that has a flag for the field names the flag instead.
type FieldError struct {
	Field string // such as "Workload.Latency"
	Err   error  // reason why the value is invalid
}

// Error returns the field and the reason.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *FieldError) Unwrap() error { return e.Err }

// FileOf returns err as the error of a field that names a file, if err is about a file that cannot be used.
func FileOf(field string, err error) error {
	if err == nil || Of(err).Code != File {
		return err
	}
	return &FieldError{Field: field, Err: err}
}
