package gate_test

import (
	"encoding"
	"testing"

	"github.com/sluice-llm/sluice/internal/gate"
)

func TestNamesAreReadAsTheyAreWritten(t *testing.T) {
	check := func(from encoding.TextMarshaler, to encoding.TextUnmarshaler, same func() bool) {
		text, err := from.MarshalText()
		if err == nil {
			err = to.UnmarshalText(text)
		}
		if err != nil || !same() {
			t.Errorf("%s is read as another, %v", text, err)
		}
	}
	for k := gate.OK; k <= gate.Internal; k++ {
		var got gate.Kind
		check(k, &got, func() bool { return got == k })
	}
	for d := gate.AnyDimension; d < gate.NumDimensions; d++ {
		var got gate.Dimension
		check(d, &got, func() bool { return got == d })
	}
	for _, c := range []gate.Charge{gate.ChargeDeclared, gate.ChargeActual} {
		var got gate.Charge
		check(c, &got, func() bool { return got == c })
	}
	for _, bad := range []encoding.TextUnmarshaler{new(gate.Kind), new(gate.Dimension), new(gate.Charge)} {
		if err := bad.UnmarshalText([]byte("other")); err == nil {
			t.Errorf("%T reads anything", bad)
		}
	}
}
