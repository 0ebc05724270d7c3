"""Codes the experts of an experiment and reports how well each is decoded: python encode.py experiment=digits code=coin"""

from coin.cli.encode import main

if __name__ == "__main__":
    main()
