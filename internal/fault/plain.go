package fault

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// plain returns an error's text without the terms of the operating system.
func plain(err error) string {
	text := err.Error()
	if of, ok := errors.AsType[*net.AddrError](err); ok && of.Err == "missing port in address" {
		return afterCall.ReplaceAllString(text, "the address "+of.Addr+" has no port")
	}
	if of, ok := errors.AsType[*net.DNSError](err); ok && of.IsNotFound {
		return afterCall.ReplaceAllString(text, "the host "+of.Name+" is unknown")
	}
	path, isPath := errors.AsType[*fs.PathError](err)
	if isPath {
		err = path // of several errors, only the first with a path is described
	}
	at := slices.IndexFunc(systemErrors, func(e systemError) bool { return errors.Is(err, e.cause) })
	if at < 0 {
		return text
	}
	reason, said := systemErrors[at].reason, systemErrors[at].cause.Error()
	if isPath {
		if _, missing := os.Lstat(filepath.Dir(path.Path)); errors.Is(path, fs.ErrNotExist) && errors.Is(missing, fs.ErrNotExist) {
			reason += ", nor does its directory"
		}
		text = strings.Replace(text, path.Error(), path.Path+" "+reason, 1)
		text = strings.Replace(text, path.Path+": "+path.Path, path.Path, 1)
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

// systemError is a cause of a failed system call, and its description after the name of a file or an address.
type systemError struct {
	cause  error
	reason string
}

// systemErrors are in order: of several causes without a path, the first in this list is described.
var systemErrors = []systemError{
	{fs.ErrNotExist, "does not exist"},
	{fs.ErrPermission, "cannot be used without more permissions"},
	{syscall.ENOTDIR, "is not a directory, or not inside one"},
	{syscall.EISDIR, "is a directory"},
	{syscall.ENOSPC, "cannot be written, because the disk is full"},
	{syscall.EROFS, "cannot be written, because the file system is read-only"},
	{syscall.EADDRINUSE, "is in use by another program"},
	{syscall.EADDRNOTAVAIL, "is not an address of this host"},
	{syscall.ECONNREFUSED, "refused the connection"},
}
