"""Files that `torch.save` of PyTorch 2.13 wrote, read where PyTorch is not installed."""

from __future__ import annotations

import base64
import io
import zipfile
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from nacre.compiler.weights import open_checkpoint
from nacre.compiler.weights.checkpoint import Checkpoint
from nacre.dialect.diagnostics import DiagnosticError

ARCHIVE = (
    "c-pO%-A~g{7{<?9=te~ti1ML=-<AYN_sP)6%wpz6O&l{O3pY#I4r^msdD}AxCI%7$iHSFQ;icif@Wu;nyf)q%?~E~C`6uW(?HFwl5V6Twv#rnb"
    "{!aV6Z;J}wflwrZ_8n2wk5sFw>C1SsrV=%_^wcQid(fQkSm&MtlFFS_fS1gw1|fwni}agKRDvrty-I+qR!zgeRic{>TYO~Iu!U>)=|3Xy<0a^j"
    "%H338sH@nDtzf;b5$LQElh%$^nnX8jv0~x*rf$?K1UGEcsw^i&5G1J_b_$u6TE`G}C1SxaRr1*VQG`f2M6Z#dtIX4Lb*TxWA`mz=t009__$}yG"
    "cqOz2r(bA{rH4Ro38KypTp*(38uV$jnikd~T9@YN`<b3sxGgxNgqY2Mt3ONNTnPr9`(YEjWW$gvZNWV>8}&BZu)`LI5$eeiIPWlR!UZL?2^U?z"
    "Q37KnxKyUk2x+RZ0GEAsd1tfnOxyB`W0`=fuI06s<#lFx!?nCgKq|p_vl%NY;fS65u=bv6*eV{Fg+Y{SXCby=T8k>FEMv>2544cK6NtpIjyQvO"
    "_w&mJ<7Vq%h!Hfk2hn=!71hw|jYZrbg?#c~I5H^)kXwNt94)~e3ee}d3-hZ4n=HvE+`pj{VqnIwdH3tEK&uFcGW4JsUsq1bh5YRk0JyH}GxQ^e"
    "&^@}=>DtaQqSCkTV?*?hp(BVU{6z6WUixdIU#%nDa$|LuKSm+yOrXQ-ru=mig}i+1JF$~PJFI4ScJ3={vW`P*_IeWVfAXIcS@lnE>ral(-zZA#"
    "HGs2a8(TW<fM+Tjtrfji$j6QeBWF|7scbfznwrj}<y3YmnU>{@oX#XO@l+z7kki?0Ivr0k%9r8K8xrM^9Lf-bZF73(NOT{0@I4Y#dk4UvPub0("
    "gC<YV#M{IpK9g5olYNsT=;Lj~KA%rNkM<9MpxoOvJwEvx9tC<gsP!h_ua!Ci+IUdwO|W0P9n>a*T5tY(ecFLe6ij?j?2W~!PyE^={&Qf9iXcqv"
    "#+$#@R(1u>4><Rn6?Vsj;7p9Q7K8id=oDN{mvg;)?Qhq|{b2"
)

BEFORE = (
    "c-n1|%Wl&^6o&0_8iQ#|xl^t!*T5obLYg=mf)MIvxTYI#kY(&4GsyDzjE{?oR4JQAz%#I5$z$|&cmyOQ7++ebl#yoSIdlAf|2bz$zB=*mZ(G0C"
    "KKyvS+MbdZKP`Rkfzk3-48us3L>bE1-(e~fG67R3cuV>v7KkzPSrUmL0rJ^%bP#t_=4av)%fQ-$M$22!!Hi3Vut14t>6=IpnzZ3H3JsY|z^08n"
    "KV%m9ER`V#lUk)@h5<4^5+MQ!wUd~IsEuUKD-|)tqG$TW0qeoIz%3S{!7fwnk4#LsriLh0$lHF7BF-FNv3I$MBOh6kN#*Z!9cZ>%o?U{Z3MLHf"
    ">KA7#mH}>8K?hEF%Q|P++vp4iuG@1vn;ShiSymLLIXJZW65-SvYEVM087xwZnlo7X!V7212&c!eQr1)1L%||A!!?`Re6IFcUTK~yG%ZSIaGsil"
    "^o2_EBEqFHT&_BdEX`oGlB?}M*S$S*f8`&+9c*^H9oKc?swNOkxK_H}hwIebhZ~jpO@y^Etd~>bLHr(W9TR_AHmB1+0^B}ULVq|MKI+4r8gRD;"
    "+$#Y0D?kfDpAXB)zbz&|rv>IbQ8KR-i?y4^|7-eKA0xwfqW4tq?;}#b9E^;E!|y-!vg`X_PUX#)"
)
"""The files of a dict with the number of an epoch and, in `state_dict`, the tensors below. `layer.tied` is the
transpose of `layer.weight` and shares its storage. BEFORE is in the format of versions before 1.6."""
EXPECTED = {
    "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "layer.tied": (np.arange(6, dtype=np.float32).reshape(2, 3) / 4).T,
    "steps": np.array([-1, 7]),
    "half": np.array([1.5, -2.0], ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("text", [ARCHIVE, BEFORE], ids=["archive", "before 1.6"])
def test_tensors_of_a_checkpoint(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.ckpt"
    data = zlib.decompress(base64.b85decode(text))
    path.write_bytes(data)
    checkpoint = open_checkpoint(path)
    assert set(checkpoint.names()) == set(EXPECTED)
    for name, array in EXPECTED.items():
        found = checkpoint.read(name)
        assert found.dtype == array.dtype and np.array_equal(found, array), name
    for size in range(0, len(data), 37):
        path.write_bytes(data[:size])
        with pytest.raises(DiagnosticError):
            open_checkpoint(path)


def test_elements_of_each_width_in_the_other_byte_order(tmp_path: Path) -> None:
    """Storages of 24, 16 and 4 bytes have elements of 4, 8 and 2 bytes."""
    path = tmp_path / "model.ckpt"
    orders = {24: ">u4", 16: ">u8", 4: ">u2"}
    data = io.BytesIO(zlib.decompress(base64.b85decode(ARCHIVE)))
    with zipfile.ZipFile(data) as archive, zipfile.ZipFile(path, "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            if "/data/" in name:
                order = np.dtype(orders.pop(len(content)))
                content = np.frombuffer(content, order.newbyteorder("<")).astype(order).tobytes()
            changed.writestr(name, b"big" if name.endswith("/byteorder") else content)
    assert not orders
    checkpoint = open_checkpoint(path)
    for name, array in EXPECTED.items():
        assert np.array_equal(checkpoint.read(name), array), name


@pytest.mark.parametrize("text", [ARCHIVE, BEFORE], ids=["archive", "before 1.6"])
def test_a_call_of_the_system_is_refused(tmp_path: Path, text: str) -> None:
    """The global that makes a tensor is exchanged for another one."""
    data = zlib.decompress(base64.b85decode(text))
    before, after = b"ctorch._utils\n_rebuild_tensor_v2\n", b"cos\nsystem\n"
    path = tmp_path / "model.pth"
    if text == BEFORE:
        assert before in data
        path.write_bytes(data.replace(before, after))
    else:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(path, "w") as changed:
            for name in archive.namelist():
                content = archive.read(name)
                assert before in content or not name.endswith("data.pkl")
                changed.writestr(name, content.replace(before, after))
    with pytest.raises(DiagnosticError, match=r"os\.system"):
        open_checkpoint(path)


OTHERS = b"".join(
    [
        b"\x80\x02}(",
        b"X\x04\0\0\0bestcnumpy._core.multiarray\nscalar\nq\x03cnumpy\ndtype\nq\x04X\x02\0\0\0f8\x89\x88\x87R",
        b"q\x07(K\x03X\x01\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbc_codecs\nencode\nq\x0a",
        b"X\x09\0\0\0\0\0\0\0\0\0\xc3\xa0?X\x06\0\0\0latin1q\x0c\x86R\x86R",
        b"X\x04\0\0\0meancnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R",
        b"(K\x01K\x01K\x02\x86h\x07\x88C\x10" + np.array([1.5, -2.0]).tobytes() + b"tb",
        b"u.",
    ]
)
"""The pickle of `{"best": np.float64(0.5), "mean": np.array([[1.5, -2.0]])}`."""


def _read(path: Path, pickled: bytes) -> Checkpoint:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickled)
    return open_checkpoint(path)


def test_values_of_numpy(tmp_path: Path) -> None:
    checkpoint = _read(tmp_path / "model.pth", OTHERS)
    assert list(checkpoint.names()) == ["mean"]  # a scalar is a number, as those of Python
    found = checkpoint.read("mean")
    assert found.dtype == np.float64 and found.tolist() == [[1.5, -2.0]]


def test_values_of_older_versions_of_numpy(tmp_path: Path) -> None:
    older = OTHERS.replace(b"f8\x89\x88\x87R", b"f8K\0K\x01\x87R")
    assert older != OTHERS
    assert _read(tmp_path / "model.pth", older).read("mean").tolist() == [[1.5, -2.0]]


def test_an_array_without_axes(tmp_path: Path) -> None:
    single = OTHERS.replace(b"K\x01K\x02\x86h", b")h").replace(
        b"C\x10" + np.array([1.5, -2.0]).tobytes(), b"C\x08" + bytes(8)
    )
    found = _read(tmp_path / "model.pth", single).read("mean")
    assert found.shape == () and found == 0


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b"f8", b"O8", "the dtype 'O8' of NumPy is none of"),
        (b"f8", b"f4", "has 8 bytes, and 4 are expected"),
        (b"<", b"?", "has no byte order"),
        (b"NNNJ", b"}NNJ", "has fields"),
        (b"latin1", b"zlib_1", "not encoded as"),
        (b"K\x01K\x02\x86h", b"K\x01K\x03\x86h", "has 16 bytes, and 24 are expected"),
        (b"_codecs\nencode", b"_codecs\ndecode", r"_codecs\.decode"),
    ],
)
def test_wrong_values_of_numpy(tmp_path: Path, before: bytes, after: bytes, message: str) -> None:
    assert OTHERS.count(before) == 1
    with pytest.raises(DiagnosticError, match=message):
        _read(tmp_path / "model.pth", OTHERS.replace(before, after))
