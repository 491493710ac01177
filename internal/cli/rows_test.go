package cli_test

import (
	"bytes"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/rogpeppe/go-internal/testscript"
)

// compress FROM TO writes a file compressed.
func cmdCompress(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "compress FROM TO")
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(w.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o644))
}

// cut FROM TO N writes the first bytes of a file.
func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "cut FROM TO N")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(ts.ReadFile(args[0])[:number(ts, args[2])]), 0o644))
}
