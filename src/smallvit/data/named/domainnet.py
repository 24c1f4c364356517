"""DomainNet, the cleaned version: six domains with the same 345 classes, each a set of its own, with the official lists."""

from __future__ import annotations

from pathlib import Path

from smallvit.data.listed import Listed, Listing
from smallvit.data.named.declared import Layout, Read, Remote, named
from smallvit.data.named.reading import fields_of
from smallvit.errors import DataError

HOME = "http://csr.bu.edu/ftp/visda/2019/multi-source"
# Images to train and to test; the zip file below HOME, its MB and sha256; sha256 of the list to train and to test.
DOMAINS = {
    "clipart": (33_525, 14_604, "groundtruth/clipart.zip", 1270.9,
        "f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d",
        "affdadf5f95a7583e6b98030a3d35007e2613ee4dd942393c5a705ec2b429312",
        "62c8e36aaba1c41ad9e249099739707220a44c08f167b37ef420f34a31628a6b"),
    "infograph": (36_023, 15_582, "infograph.zip", 4338.7,
        "891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa",
        "36b44cbd41a2915e0dc73b4f4be8862a6f3c220f93c8d63fb2439beeae3aefda",
        "413cfa54ac92e7e6b242f4f09fbd9c8ace85c4deaf3cb6c81ff6b68264460136"),
    "painting": (50_416, 21_850, "groundtruth/painting.zip", 3679.4,
        "fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015",
        "f1da38d50a702fddf1329f85bc607d7a2abcae7e6aec75e1fd49cc1bd340d47b",
        "11472b13b5188e09f06918b12eebb660588c97a20e43e268d9b02e3e37eb8f97"),
    "quickdraw": (120_750, 51_750, "quickdraw.zip", 459.9,
        "9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84",
        "3a5edd3bc215772010eebc87f158707703dd7e48091d13b816af81326a9d1c0f",
        "2a00a60650a453c65c356da748fec54084a197272137c440e7d52d08947357bf"),
    "real": (120_906, 52_041, "real.zip", 6062.0,
        "d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63",
        "19d483256d24aef19e581b65eda8333fd918aef3eb733fe499ff384120e3a289",
        "2b3f75bcde309aeb5931292084b2162e936b5f189e3bb1ad716f0f74c460864c"),
    "sketch": (48_212, 20_916, "sketch.zip", 2634.0,
        "23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc",
        "72f4bc6afa5702a1ccba800d0053c1427de87439dfaf246dbc9a2e71abfec54f",
        "3fb48fca18c507c4321f007c3f62b308ec232ff6928cbfe2af64e76ec366e840"),
}  # fmt: skip
CLASSES = 345


def _declare(domain: str) -> Read:
    train, test, archive, megabytes, images_digest, train_digest, test_digest = DOMAINS[domain]
    lists = {f"{domain}_train.txt": train_digest, f"{domain}_test.txt": test_digest}

    def read(root: Path) -> Listing:
        return _listing(root, domain)

    read.__doc__ = f"DomainNet (Peng et al. 2019), its domain {domain}; the cleaned version."
    return named(
        f"domainnet-{domain}",
        images={"train": train, "test": test},
        classes=CLASSES,
        layouts=(Layout("DomainNet", (domain, *lists)),),
        remotes=(
            Remote(f"{HOME}/{archive}", f"sha256:{images_digest}", megabytes, f"DomainNet/{domain}", "DomainNet"),
            *(
                Remote(f"{HOME}/domainnet/txt/{name}", f"sha256:{digest}", 6, f"DomainNet/{name}", "DomainNet")
                for name, digest in lists.items()
            ),
        ),
        size=f"{megabytes / 1000:.1f} GB",
    )(read)


def _listing(root: Path, domain: str) -> Listing:
    """Lines of `domain/class/file number`; a number has one class."""
    items: list[Listed] = []
    numbers: dict[str, str] = {}
    for part in ("train", "test"):
        for file, number in fields_of(root / f"{domain}_{part}.txt", 2, 1):
            of_domain, _, rest = file.partition("/")
            klass = rest.partition("/")[0]
            if of_domain != domain or not number.isdecimal() or numbers.setdefault(klass, number) != number:
                raise DataError(
                    f"{root / f'{domain}_{part}.txt'}: {file!r} {number!r} is no image of {domain} with its class"
                )
            items.append(Listed(root / file, klass, part))
    return Listing(f"domainnet-{domain}", root, items, tuple(sorted(numbers, key=lambda klass: int(numbers[klass]))))


for _domain in DOMAINS:
    _declare(_domain)
