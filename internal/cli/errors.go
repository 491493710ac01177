package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"strings"
	"syscall"

	"github.com/sluice-llm/sluice/internal/term"
)

// Exit codes.
const (
	exitDone        = 0   // everything was done
	exitFailed      = 1   // could not run: nothing was recorded of what failed
	exitUsage       = 2   // wrong flags, configuration or input
	exitItems       = 3   // finished, but some items of the output failed
	exitThreshold   = 4   // a budget or deadline that was set cannot be kept, or no number of workers is safe
	exitBudget      = 5   // stopped by a budget that was set
	exitInterrupted = 130 // stopped by a signal; resumable
)

// exitError is an error with the exit code it ends the program with, and a hint of what to do about it.
type exitError struct {
	code int
	err  error // nil: the code says it all, nothing is printed
	list bool  // the message has a line for each of several faults
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return plain(e.err)
}

// plain returns an error's text without the terms of the operating system.
func plain(err error) string {
	text := err.Error()
	if of, ok := errors.AsType[*net.AddrError](err); ok && of.Err == "missing port in address" {
		return afterCall.ReplaceAllString(text, "the address "+of.Addr+" has no port")
	}
	if of, ok := errors.AsType[*net.DNSError](err); ok && of.IsNotFound {
		return afterCall.ReplaceAllString(text, "the host "+of.Name+" is unknown")
	}
	var of error
	for cause := range systemErrors {
		if errors.Is(err, cause) {
			of = cause
		}
	}
	if of == nil {
		return text
	}
	reason := systemErrors[of]
	said := of.Error()
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		text = strings.Replace(text, of.Error(), of.Path+" "+reason, 1)
		text = strings.Replace(text, of.Path+": "+of.Path, of.Path, 1)
	}
	if of, ok := errors.AsType[*net.OpError](err); ok && of.Addr != nil {
		text = strings.Replace(text, of.Error(), of.Addr.String()+" "+reason, 1)
	}
	for _, call := range []string{": bind: ", ": connect: ", ": "} {
		text = strings.Replace(text, call+said, " "+reason, 1)
	}
	return text
}

// afterCall matches the text of a network call that failed because of its address.
var afterCall = regexp.MustCompile(`((dial|listen) tcp: )?(address \S+: missing port in address|lookup \S+( on \S+)?: no such host)`)

// systemErrors describe the causes of failed system calls, after the name of a file or an address.
var systemErrors = map[error]string{
	fs.ErrNotExist:        "does not exist",
	fs.ErrPermission:      "cannot be used without more permissions",
	syscall.ENOTDIR:       "is not inside a directory",
	syscall.EISDIR:        "is a directory",
	syscall.ENOSPC:        "cannot be written, because the disk is full",
	syscall.EROFS:         "cannot be written, because the file system is read-only",
	syscall.EADDRINUSE:    "is in use by another program",
	syscall.EADDRNOTAVAIL: "is not an address of this host",
	syscall.ECONNREFUSED:  "refused the connection",
}

func (e *exitError) Unwrap() error { return e.err }

// outcome is how a run ended that ends with this error, as its summary has it.
func (e *exitError) outcome() string {
	switch e.code {
	case exitInterrupted:
		return "interrupted"
	case exitBudget:
		return "stopped"
	}
	return "failed"
}

// usageError is a fault in flags, configuration or input.
func usageError(err error, hint string, args ...any) error {
	return &exitError{code: exitUsage, err: err, hint: fmt.Sprintf(hint, args...)}
}

// silent ends the program with code and no message.
func silent(code int) error { return &exitError{code: code} }

// failed gives err an exit code if it has none.
func failed(err error) error {
	var e *exitError
	if err == nil || errors.As(err, &e) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return &exitError{code: exitInterrupted, err: errors.New("interrupted")}
	}
	return &exitError{code: exitFailed, err: err}
}

// report prints err as people read it and returns its exit code.
func report(s *term.Streams, err error) int {
	if err == nil {
		return exitDone
	}
	var e *exitError
	if !errors.As(err, &e) { // cobra's own: a wrong argument or an unknown command
		e = &exitError{code: exitUsage, err: err, hint: "see sluice --help"}
	}
	if e.err != nil {
		lines := []string{e.Error()}
		if e.list {
			lines = strings.Split(e.Error(), "\n")
		}
		for i, line := range lines {
			prefix := "sluice: error: "
			if i > 0 {
				prefix = strings.Repeat(" ", len(prefix))
			}
			s.Errorf("%s%s\n", prefix, line)
		}
		if e.hint != "" {
			s.Errorf("hint: %s\n", e.hint)
		}
	}
	return e.code
}
