//! Codecs of quantised matrices against bitsandbytes, AWQ and GPTQ.

use crate::golden::{Golden, assert_close, largest};
use serde_json::{Value, json};
use verl_backends::quant::{
    AwqTensors, Dequantise, DoubleScales, GptqTensors, Grouped, NF4_LEVELS, Nf4, Scales,
    dynamic_levels,
};

fn shape(tensor: &Value) -> [usize; 2] {
    [0, 1].map(|axis| tensor["shape"][axis].as_u64().unwrap() as usize)
}

/// Cases of NF4, with or without double quantisation, with their matrices.
fn nf4_cases(golden: &Golden, double: bool) -> Vec<(String, Vec<f32>, [usize; 2], &Value)> {
    let cases = golden.cases("NF4");
    cases
        .filter(|case| case["outputs"]["offset"].is_number() == double)
        .map(|case| {
            let matrix = &case["inputs"]["matrix"];
            let name = case["desc"].as_str().unwrap().to_string();
            (name, golden.floats(matrix), shape(matrix), &case["outputs"])
        })
        .collect()
}

/// Asserts that codes are equal but in blocks of zeros, whose codes say nothing.
fn assert_codes(what: &str, got: &[u8], want: &[u8], values: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: bytes of codes");
    for (block, values) in values.chunks(Nf4::BLOCK).enumerate() {
        let bytes = block * 32..(block * 32 + 32).min(got.len());
        if largest(values) > 0.0 {
            assert_eq!(got[bytes.clone()], want[bytes], "{what}, block {block}");
        }
    }
}

#[test]
fn levels_are_those_of_bitsandbytes() {
    let golden = Golden::quant("nf4");
    assert_eq!(golden.floats(&json!({"key": "nf4_levels"})), NF4_LEVELS);
    assert_eq!(
        golden.floats(&json!({"key": "nested_code"})),
        dynamic_levels()
    );
}

#[test]
fn nf4_has_the_codes_scales_and_values_of_bitsandbytes() {
    let golden = Golden::quant("nf4");
    for (name, values, shape, want) in nf4_cases(&golden, false) {
        let quantised = Nf4::quantise(&values, shape).unwrap();
        let packed = golden.octets(&want["packed"]);
        assert_codes(&name, quantised.codes(), &packed, &values);
        let absmax = golden.floats(&want["absmax"]);
        assert_eq!(*quantised.scales(), Scales::Plain(absmax.clone()), "{name}");
        let dequantised = golden.floats(&want["dequantised"]);
        assert_eq!(quantised.dequantise(), dequantised, "{name}");
        let read = Nf4::new(packed, Scales::Plain(absmax), shape).unwrap();
        assert_eq!(read.dequantise(), dequantised, "{name}, as stored");
        assert_errors(&name, &values, &dequantised, &want["error"]);
    }
}

fn assert_errors(name: &str, was: &[f32], is: &[f32], want: &Value) {
    let off = was.iter().zip(is).map(|(a, b)| f64::from((a - b).abs()));
    let (mut sum, mut squares, mut most) = (0.0, 0.0, 0.0f64);
    for d in off {
        (sum, squares, most) = (sum + d, squares + d * d, most.max(d));
    }
    let n = was.len() as f64;
    for (key, got) in [
        ("max_abs", most),
        ("mean_abs", sum / n),
        ("rmse", (squares / n).sqrt()),
    ] {
        let want = want[key].as_f64().unwrap();
        assert!(
            (got - want).abs() <= 1e-5 * want,
            "{name}: {key} is {got}, want {want}"
        );
    }
}

#[test]
fn double_quantisation_has_the_codes_scales_and_values_of_bitsandbytes() {
    let golden = Golden::quant("nf4");
    for (name, values, shape, want) in nf4_cases(&golden, true) {
        let quantised = Nf4::quantise_twice(&values, shape).unwrap();
        let packed = golden.octets(&want["packed"]);
        assert_codes(&name, quantised.codes(), &packed, &values);
        let Scales::Double(scales) = quantised.scales() else {
            panic!("{name}: scales in f32");
        };
        let nested = golden.floats(&want["nested_absmax"]);
        let offset = want["offset"].as_f64().unwrap() as f32;
        assert_close(&name, &[scales.offset()], &[offset], 1e-6 * offset.abs());
        assert_close(&name, scales.absmax(), &nested, 1e-5 * largest(&nested));
        let codes = golden.octets(&want["absmax_codes"]);
        if largest(&nested) > 0.0 {
            assert_eq!(scales.codes(), codes, "{name}: codes of the scales");
        }
        let restored = golden.floats(&want["absmax_restored"]);
        let dequantised = golden.floats(&want["dequantised"]);
        let bound = 2e-6 * largest(&restored);
        assert_close(&name, &quantised.dequantise(), &dequantised, bound);

        let scales = Scales::Double(DoubleScales::new(codes, nested, offset).unwrap());
        let got: Vec<f32> = (0..scales.len()).map(|block| scales.get(block)).collect();
        assert_eq!(got, restored, "{name}: scales as stored");
        let read = Nf4::new(packed, scales, shape).unwrap();
        assert_eq!(read.dequantise(), dequantised, "{name}, as stored");
    }
}

#[test]
fn awq_and_gptq_have_the_codes_and_values_of_their_packers() {
    let golden = Golden::quant("awq_gptq");
    for case in golden.cases("") {
        let name = case["desc"].as_str().unwrap();
        let layer = unpacked(&golden, case);
        let want = &case["outputs"];
        let [outputs, inputs] = layer.shape();
        let codes = golden.octets(&want["codes"]);
        let zeros = golden.octets(&want["zeros"]);
        let values = golden.floats(&want["dequantised_in_out"]);
        let got = layer.dequantise();
        for output in 0..outputs {
            for input in 0..inputs {
                let at = input * outputs + output;
                assert_eq!(layer.code(output, input), codes[at], "{name}");
                assert_eq!(got[output * inputs + input], values[at], "{name}");
            }
            for group in 0..layer.group_count() {
                assert_eq!(layer.zero(output, group), zeros[group * outputs + output]);
            }
        }
        let bias = match &case["inputs"]["bias"] {
            Value::Null => vec![0.0; outputs],
            bias => golden.floats(bias),
        };
        let x = golden.floats(&case["inputs"]["x"]);
        let y = product(&x, &got, &bias, inputs);
        assert_close(name, &y, &golden.floats(&want["y"]), 1e-4);
    }
}

fn unpacked(golden: &Golden, case: &Value) -> Grouped {
    let (inputs, config) = (&case["inputs"], &case["config"]);
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let shape = [&config["out_features"], &config["in_features"]].map(number);
    let section = &config["quantization_config"];
    let group_size = number(&section["group_size"]);
    let qweight = &golden.words(&inputs["qweight"]);
    let qzeros = &golden.words(&inputs["qzeros"]);
    let scales = &golden.floats(&inputs["scales"]);
    let layer = match section["quant_method"].as_str().unwrap() {
        "awq" => AwqTensors {
            shape,
            group_size,
            qweight,
            qzeros,
            scales,
        }
        .unpack(),
        _ => GptqTensors {
            shape,
            group_size,
            qweight,
            qzeros,
            scales,
            g_idx: Some(&golden.words(&inputs["g_idx"])),
        }
        .unpack(),
    };
    layer.unwrap()
}

/// `x W^T + b` of row-major matrices.
fn product(x: &[f32], weight: &[f32], bias: &[f32], inputs: usize) -> Vec<f32> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let of_row = |row: &[f32]| {
        let columns = weight.chunks(inputs).zip(bias);
        columns.map(|(w, b)| dot(row, w) + b).collect::<Vec<f32>>()
    };
    x.chunks(inputs).flat_map(of_row).collect()
}
