package fault

import (
	"errors"
	"io/fs"
	"net"
	"regexp"
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
