package limits_test

import (
	"encoding"
	"testing"

	"github.com/sluice-llm/sluice/limits"
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
	for k := limits.OK; k <= limits.Internal; k++ {
		var got limits.Kind
		check(k, &got, func() bool { return got == k })
	}
	for d := limits.AnyDimension; d < limits.NumDimensions; d++ {
		var got limits.Dimension
		check(d, &got, func() bool { return got == d })
	}
	for _, c := range []limits.Charge{limits.ChargeDeclared, limits.ChargeActual} {
		var got limits.Charge
		check(c, &got, func() bool { return got == c })
	}
	for _, bad := range []encoding.TextUnmarshaler{new(limits.Kind), new(limits.Dimension), new(limits.Charge)} {
		if err := bad.UnmarshalText([]byte("other")); err == nil {
			t.Errorf("%T reads anything", bad)
		}
	}
}
