package rows_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-llm/sluice/internal/rows"
)

// annotated is a physical type with a logical type for which the library has no node.
type annotated struct {
	parquet.Type
	logical format.LogicalTypeValue
}

func (a annotated) LogicalType() *format.LogicalType { return &format.LogicalType{Value: a.logical} }

// oldAnnotated is one with an annotation from before logical types.
type oldAnnotated struct {
	parquet.Type
	old deprecated.ConvertedType
}

func (o oldAnnotated) LogicalType() *format.LogicalType         { return nil }
func (o oldAnnotated) ConvertedType() *deprecated.ConvertedType { return &o.old }

// oldList is a list without the level between it and its items.
type oldList struct{ parquet.Group }

func (oldList) Type() parquet.Type { return parquet.List(parquet.String()).Type() }

// columnFile writes a Parquet file whose column c has these records.
func columnFile(t *testing.T, column parquet.Node, records ...parquet.Row) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewWriter(&b, parquet.NewSchema("root", parquet.Group{"c": column}))
	for _, record := range records { // each in a row group of its own
		if _, err := w.WriteRows([]parquet.Row{record}); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, "in.parquet", b.String())
}

// leaf is a type of values, and one of them with its JSON; "" is one that is refused.
type leaf struct {
	name  string
	node  parquet.Node
	value parquet.Value
	want  string
}

func leaves() []leaf {
	i32, i64, double, float := parquet.Int32Value, parquet.Int64Value, parquet.DoubleValue, parquet.FloatValue
	text := func(s string) parquet.Value { return parquet.ByteArrayValue([]byte(s)) }
	fixed := func(s string) parquet.Value { return parquet.FixedLenByteArrayValue([]byte(s)) }
	plain := parquet.Leaf
	const micros = 1767323045000006 // 2026-01-02T03:04:05.000006
	return []leaf{
		{"bool", plain(parquet.BooleanType), parquet.BooleanValue(true), `true`},
		{"int32", plain(parquet.Int32Type), i32(math.MinInt32), `-2147483648`},
		{"int64", plain(parquet.Int64Type), i64(math.MinInt64), `-9223372036854775808`},
		{"int8", parquet.Int(8), i32(-128), `-128`},
		{"uint8", parquet.Uint(8), i32(255), `255`},
		{"uint32", parquet.Uint(32), i32(-1), `4294967295`},
		{"uint64", parquet.Uint(64), i64(math.MinInt64), `9223372036854775808`},
		{"uint64 of old files", plain(oldAnnotated{parquet.Int64Type, deprecated.Uint64}), i64(-1), `18446744073709551615`},
		{"float32", plain(parquet.FloatType), float(0.1), `0.1`},
		{"float64", plain(parquet.DoubleType), double(0.1), `0.1`},
		{"float64 of all digits", plain(parquet.DoubleType), double(0.1 + 1e-17), `0.1`},
		{"NaN", plain(parquet.DoubleType), double(math.NaN()), `"NaN"`},
		{"infinity", plain(parquet.FloatType), float(float32(math.Inf(-1))), `"-Infinity"`},
		{"string", parquet.String(), text("a \"é\"\n"), `"a \"é\"\n"`},
		{"broken string", parquet.String(), text("\xff"), ""},
		{"enum", parquet.Enum(), text("RED"), `"RED"`},
		{"json", parquet.JSON(), text(`{"a":1}`), `"{\"a\":1}"`},
		{"binary of text", plain(parquet.ByteArrayType), text("é"), `"é"`},
		{"binary", plain(parquet.ByteArrayType), text("\x89PNG"), ""},
		{"fixed text", plain(parquet.FixedLenByteArrayType(2)), fixed("de"), `"de"`},
		{"decimal of int32", parquet.Decimal(2, 9, parquet.Int32Type), i32(-5), `-0.05`},
		{"decimal of int64", parquet.Decimal(2, 18, parquet.Int64Type), i64(123456789012), `1234567890.12`},
		{"decimal of bytes", parquet.Decimal(3, 38, parquet.ByteArrayType), text("\xff\x00"), `-0.256`},
		{"decimal of fixed bytes", parquet.Decimal(0, 38, parquet.FixedLenByteArrayType(16)), fixed("\x7f" + strings.Repeat("\xff", 15)), `170141183460469231731687303715884105727`},
		{"date", parquet.Date(), i32(-1), `"1969-12-31"`},
		{"time of milliseconds", parquet.Time(parquet.Millisecond), i32(86399999), `"23:59:59.999"`},
		{"time of microseconds", parquet.TimeAdjusted(parquet.Microsecond, false), i64(1), `"00:00:00.000001"`},
		{"no time of day", parquet.Time(parquet.Nanosecond), i64(-1), ""},
		{"timestamp of milliseconds", parquet.Timestamp(parquet.Millisecond), i64(-1), `"1969-12-31T23:59:59.999Z"`},
		{"timestamp of microseconds", parquet.Timestamp(parquet.Microsecond), i64(micros), `"2026-01-02T03:04:05.000006Z"`},
		{"local timestamp", parquet.TimestampAdjusted(parquet.Microsecond, false), i64(micros), `"2026-01-02T03:04:05.000006"`},
		{"timestamp of nanoseconds", parquet.Timestamp(parquet.Nanosecond), i64(1), `"1970-01-01T00:00:00.000000001Z"`},
		{"INT96", plain(parquet.Int96Type), parquet.Int96Value(deprecated.Int96{1, 0, 2440589}), `"1970-01-02T00:00:00.000000001"`},
		{"uuid", parquet.UUID(), fixed("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"), `"00010203-0405-0607-0809-0a0b0c0d0e0f"`},
		{"float16", plain(annotated{parquet.FixedLenByteArrayType(2), new(format.Float16Type)}), fixed("\x00\x3c"), ""},
		{"interval", parquet.IntervalNode(), fixed("abcdefghijkl"), ""},
		{"bson", parquet.BSON(), text("x"), ""},
	}
}

func TestValuesOfParquetAreExactAtAnyDepth(t *testing.T) {
	for _, of := range leaves() {
		str := parquet.ByteArrayValue([]byte("k"))
		for _, depth := range []struct {
			name   string
			node   parquet.Node
			record parquet.Row
			before string
			after  string
		}{
			{"column", of.node, parquet.Row{of.value.Level(0, 0, 0)}, ``, ``},
			{"optional", parquet.Optional(of.node), parquet.Row{of.value.Level(0, 1, 0)}, ``, ``},
			{"list", parquet.List(of.node), parquet.Row{of.value.Level(0, 1, 0)}, `[`, `]`},
			{"repeated", parquet.Repeated(of.node), parquet.Row{of.value.Level(0, 1, 0)}, `[`, `]`},
			{"struct", parquet.Group{"s": of.node}, parquet.Row{of.value.Level(0, 0, 0)}, `{"s":`, `}`},
			{"map", parquet.Map(parquet.String(), parquet.List(of.node)), parquet.Row{str.Level(0, 1, 0), of.value.Level(0, 2, 1)}, `{"k":[`, `]}`},
		} {
			got, _, err := readFile(columnFile(t, depth.node, depth.record), rows.Config{})
			if of.want == "" {
				wrong, ok := errors.AsType[*rows.Error](err)
				if !ok || !strings.Contains(wrong.Problem, `column "c`) || !strings.Contains(wrong.Problem, "type ") || !strings.Contains(wrong.Hint, `duckdb -c "COPY (FROM '`) {
					t.Errorf("%s, %s: rows %v, error %v", of.name, depth.name, got, err)
				}
				continue
			}
			want := `{"c":` + depth.before + of.want + depth.after + `}`
			if err != nil || len(got) != 1 || got[0].Text != want {
				t.Errorf("%s, %s: rows %v, error %v, want %s", of.name, depth.name, got, err, want)
			}
		}
	}
}

func TestListsMapsAndNullsOfParquet(t *testing.T) {
	n := func(i int64, repetition, definition, column int) parquet.Value {
		return parquet.Int64Value(i).Level(repetition, definition, column)
	}
	none := func(repetition, definition, column int) parquet.Value {
		return parquet.NullValue().Level(repetition, definition, column)
	}
	key := func(s string, repetition, definition int) parquet.Value {
		return parquet.ByteArrayValue([]byte(s)).Level(repetition, definition, 0)
	}
	long := parquet.Leaf(parquet.Int64Type)
	some := parquet.Optional(parquet.List(parquet.Optional(long)))
	for _, test := range []struct {
		name   string
		node   parquet.Node
		record parquet.Row
		want   string
	}{
		{"null", parquet.Optional(long), parquet.Row{none(0, 0, 0)}, `null`},
		{"null list", some, parquet.Row{none(0, 0, 0)}, `null`},
		{"empty list", some, parquet.Row{none(0, 1, 0)}, `[]`},
		{"null in a list", some, parquet.Row{n(1, 0, 3, 0), none(1, 2, 0), n(2, 1, 3, 0)}, `[1,null,2]`},
		{"lists of lists", parquet.List(parquet.List(long)), parquet.Row{n(1, 0, 2, 0), n(2, 2, 2, 0), none(1, 1, 0), n(3, 1, 2, 0)}, `[[1,2],[],[3]]`},
		{"null in a struct", parquet.Group{"a": parquet.Optional(long), "b": long}, parquet.Row{none(0, 0, 0), n(1, 0, 0, 1)}, `{"a":null,"b":1}`},
		{"null struct", parquet.Optional(parquet.Group{"a": long, "b": long}), parquet.Row{none(0, 0, 0), none(0, 0, 1)}, `null`},
		{"list of structs", parquet.List(parquet.Group{"a": long, "b": long}), parquet.Row{n(1, 0, 1, 0), n(3, 1, 1, 0), n(2, 0, 1, 1), n(4, 1, 1, 1)}, `[{"a":1,"b":2},{"a":3,"b":4}]`},
		{"map", parquet.Map(parquet.String(), parquet.Optional(long)), parquet.Row{key("x\n", 0, 1), key("y", 1, 1), n(1, 0, 2, 1), none(1, 1, 1)}, `{"x\n":1,"y":null}`},
		{"list of old files", oldList{parquet.Group{"array": parquet.Repeated(long)}}, parquet.Row{n(1, 0, 1, 0), n(2, 1, 1, 0)}, `[1,2]`},
		{"list of structs of old files", oldList{parquet.Group{"array": parquet.Repeated(parquet.Group{"a": long})}}, parquet.Row{n(1, 0, 1, 0)}, `[{"a":1}]`},
		{"null type", parquet.Optional(parquet.Leaf(annotated{parquet.Int32Type, new(format.NullType)})), parquet.Row{none(0, 0, 0)}, `null`},
		{"empty map", parquet.Map(parquet.String(), long), parquet.Row{none(0, 0, 0), none(0, 0, 1)}, `{}`},
	} {
		got, _, err := readFile(columnFile(t, test.node, test.record, test.record), rows.Config{})
		if want := `{"c":` + test.want + `}`; err != nil || len(got) != 2 || got[0].Text != want || got[1].Text != want {
			t.Errorf("%s: rows %v, error %v, want %s", test.name, got, err, want)
		}
	}
	_, _, err := readFile(columnFile(t, parquet.Map(long, long)), rows.Config{})
	if err == nil || !strings.Contains(err.Error(), `column "c" has the type MAP with keys of type INT`) {
		t.Errorf("map with other keys: error %v", err)
	}
	got, _, err := readFile(columnFile(t, long), rows.Config{})
	if err != nil || len(got) != 0 {
		t.Errorf("without records: rows %v, error %v", got, err)
	}
}

func TestColumnsOfOneNameInParquetAreRefused(t *testing.T) {
	path := columnFile(t, parquet.Group{"first": parquet.String(), "other": parquet.String()})
	whole := readAll(t, path)
	if !strings.Contains(whole, "other") {
		t.Fatal("the names are not in the file as they are")
	}
	_, _, err := readFile(write(t, "in.parquet", strings.ReplaceAll(whole, "other", "first")), rows.Config{})
	if err == nil || !strings.HasSuffix(err.Error(), `in.parquet: column "c": two columns are named "first"`) {
		t.Errorf("error %v", err)
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
