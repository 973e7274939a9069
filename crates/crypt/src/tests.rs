//! The functions against published vectors and against OpenSSL, and their properties.

use aes::cipher::consts::{U16, U2, U30, U8};
use aes::cipher::inout::InOut;
use aes::cipher::{
    Block, BlockCipherDecBackend, BlockCipherDecrypt, BlockCipherEncBackend, BlockCipherEncrypt, BlockSizeUser,
    KeyInit, ParBlocksSizeUser,
};
use aes::Aes256;
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use zeroize::ZeroizeOnDrop;

use crate::xts::Xts;
use crate::{hkdf, key, FamilyKey, VolumeKey, BLOCK_SIZE};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn counting<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|i| first + i as u8)
}

fn family_key() -> FamilyKey {
    FamilyKey::from_bytes(&counting(0))
}

fn volume_key() -> VolumeKey {
    family_key().volume_key(&VOLUME)
}

const FAMILY: [u8; 16] = *b"\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f";
const VOLUME: [u8; 16] = *b"@ABCDEFGHIJKLMNO";

/// Content without a period that is a power of two.
fn content(blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK_SIZE).map(|i| (i * 7 + (i >> 8) * 13) as u8).collect()
}

/// RFC 5869, appendix A.1 and A.3 (no salt, no info).
#[test]
fn hkdf_is_that_of_the_rfc() {
    let salt: [u8; 13] = counting(0);
    let info: [u8; 10] = counting(0xf0);
    let mut okm = [0; 42];
    let prk = hkdf::extract(&salt, &[0x0b; 22]);
    assert_eq!(prk.as_bytes()[..], bytes("077709362c2e32df0ddc3f0dc47bba63 90b6c73bb50f9c3122ec844ad7c2b3e5"));
    hkdf::expand(&prk, &[&info[..3], &info[3..]], &mut okm);
    let expected = "3cb25f25faacd57a90434f64d0362f2a 2d2d0a90cf1a5a4c5db02d56ecc4c5bf 34007208d5b887185865";
    assert_eq!(okm[..], bytes(expected));

    hkdf::derive(&[0x0b; 22], &[], &mut okm);
    let expected = "8da4e775a563c18f715f802a063c5a31 b8a11f5c5ee1879ec3454e5f3c738d2d 9d201395faa4b61a96c8";
    assert_eq!(okm[..], bytes(expected));
}

/// IEEE Std 1619-2007, annex B: the vectors of XTS-AES-256. Data units of 512 bytes, number and ciphertext.
const IEEE_1619: [(u64, &str); 5] = [
    // Vector 10.
    (
        0xff,
        "
        1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b5d31e276f8fe4a8d66b317f9ac683f44680a86ac
        35adfc3345befecb4bb188fd5776926c49a3095eb108fd1098baec70aaa66999a72a82f27d848b21d4a741b0c5cd4d5fff9dac89
        aeba122961d03a757123e9870f8acf1000020887891429ca2a3e7a7d7df7b10355165c8b9a6d0a7de8b062c4500dc4cd120c0f74
        18dae3d0b5781c34803fa75421c790dfe1de1834f280d7667b327f6c8cd7557e12ac3a0f93ec05c52e0493ef31a12d3d9260f79a
        289d6a379bc70c50841473d1a8cc81ec583e9645e07b8d9670655ba5bbcfecc6dc3966380ad8fecb17b6ba02469a020a84e18e8f
        84252070c13e9f1f289be54fbc481457778f616015e1327a02b140f1505eb309326d68378f8374595c849d84f4c333ec44238851
        43cb47bd71c5edae9be69a2ffeceb1bec9de244fbe15992b11b77c040f12bd8f6a975a44a0f90c29a9abc3d4d893927284c58754
        cce294529f8614dcd2aba991925fedc4ae74ffac6e333b93eb4aff0479da9a410e4450e0dd7ae4c6e2910900575da401fc07059f
        645e8b7e9bfdef33943054ff84011493c27b3429eaedb4ed5376441a77ed43851ad77f16f541dfd269d50d6a5f14fb0aab1cbb4c
        1550be97f7ab4066193c4caa773dad38014bd2092fa755c824bb5e54c4f36ffda9fcea70b9c6e693e148c151
        ",
    ),
    // Vector 11.
    (
        0xffff,
        "
        77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11e1d0225438e093242d6db274fde801d4cae06f20
        92c728b2478559df58e837c2469ee4a4fa794e4bbc7f39bc026e3cb72c33b0888f25b4acf56a2a9804f1ce6d3d6e1dc6ca181d4b
        546179d55544aa7760c40d06741539c7e3cd9d2f6650b2013fd0eeb8c2b8e3d8d240ccae2d4c98320a7442e1c8d75a42d6e6cfa4
        c2eca1798d158c7aecdf82490f24bb9b38e108bcda12c3faf9a21141c3613b58367f922aaa26cd22f23d708dae699ad7cb40a8ad
        0b6e2784973dcb605684c08b8d6998c69aac049921871ebb65301a4619ca80ecb485a31d744223ce8ddc2394828d6a80470c092f
        5ba413c3378fa6054255c6f9df4495862bbb3287681f931b687c888abf844dfc8fc28331e579928cd12bd2390ae123cf03818d14
        dedde5c0c24c8ab018bfca75ca096f2d531f3d1619e785f1ada437cab92e980558b3dce1474afb75bfedbf8ff54cb2618e0244c9
        ac0d3c66fb51598cd2db11f9be39791abe447c63094f7c453b7ff87cb5bb36b7c79efb0872d17058b83b15ab0866ad8a58656c5a
        7e20dbdf308b2461d97c0ec0024a2715055249cf3b478ddd4740de654f75ca686e0d7345c69ed50cdc2a8b332b1f8824108ac937
        eb050585608ee734097fc09054fbff89eeaeea791f4a7ab1f9868294a4f9e27b42af8100cb9d59cef9645803
        ",
    ),
    // Vector 12.
    (
        0xffffff,
        "
        e387aaa58ba483afa7e8eb469778317ecf4cf573aa9d4eac23f2cdf914e4e200a8b490e42ee646802dc6ee2b471b278195d60918
        ececb44bf79966f83faba0499298ebc699c0c8634715a320bb4f075d622e74c8c932004f25b41e361025b5a87815391f6108fc4a
        fa6a05d9303c6ba68a128a55705d415985832fdeaae6c8e19110e84d1b1f199a2692119edc96132658f09da7c623efcec712537a
        3d94c0bf5d7e352ec94ae5797fdb377dc1551150721adf15bd26a8efc2fcaad56881fa9e62462c28f30ae1ceaca93c345cf243b7
        3f542e2074a705bd2643bb9f7cc79bb6e7091ea6e232df0f9ad0d6cf502327876d82207abf2115cdacf6d5a48f6c1879a65b115f
        0f8b3cb3c59d15dd8c769bc014795a1837f3901b5845eb491adfefe097b1fa30a12fc1f65ba22905031539971a10f2f36c321bb5
        1331cdefb39e3964c7ef079994f5b69b2edd83a71ef549971ee93f44eac3938fcdd61d01fa71799da3a8091c4c48aa9ed263ff07
        49df95d44fef6a0bb578ec69456aa5408ae32c7af08ad7ba8921287e3bbee31b767be06a0e705c864a769137df28292283ea81a2
        480241b44d9921cdbec1bc28dc1fda114bd8e5217ac9d8ebafa720e9da4f9ace231cc949e5b96fe76ffc21063fddc83a6b8679c0
        0d35e09576a875305bed5f36ed242c8900dd1fa965bc950dfce09b132263a1eef52dd6888c309f5a7d712826
        ",
    ),
    // Vector 13.
    (
        0xffffffff,
        "
        bf53d2dade78e822a4d949a9bc6766b01b06a8ef70d26748c6a7fc36d80ae4c5520f7c4ab0ac8544424fa405162fef5a6b7f2294
        98063618d39f0003cb5fb8d1c86b643497da1ff945c8d3bedeca4f479702a7a735f043ddb1d6aaade3c4a0ac7ca7f3fa5279bef5
        6f82cd7a2f38672e824814e10700300a055e1630b8f1cb0e919f5e942010a416e2bf48cb46993d3cb6a51c19bacf864785a00bc2
        ecff15d350875b246ed53e68be6f55bd7e05cfc2b2ed6432198a6444b6d8c247fab941f569768b5c429366f1d3f00f0345b96123
        d56204c01c63b22ce78baf116e525ed90fdea39fa469494d3866c31e05f295ff21fea8d4e6e13d67e47ce722e9698a1c1048d68e
        bcde76b86fcf976eab8aa9790268b7068e017a8b9b749409514f1053027fd16c3786ea1bac5f15cb79711ee2abe82f5cf8b13ae7
        3030ef5b9e4457e75d1304f988d62dd6fc4b94ed38ba831da4b7634971b6cd8ec325d9c61c00f1df73627ed3745a5e8489f3a95c
        69639c32cd6e1d537a85f75cc844726e8a72fc0077ad22000f1d5078f6b866318c668f1ad03d5a5fced5219f2eabbd0aa5c0f460
        d183f04404a0d6f469558e81fab24a167905ab4c7878502ad3e38fdbe62a41556cec37325759533ce8f25f367c87bb5578d667ae
        93f9e2fd99bcbc5f2fbba88cf6516139420fcff3b7361d86322c4bd84c82f335abb152c4a93411373aaa8220
        ",
    ),
    // Vector 14.
    (
        0xffffffffff,
        "
        64497e5a831e4a932c09be3e5393376daa599548b816031d224bbf50a818ed2350eae7e96087c8a0db51ad290bd00c1ac1620857
        635bf246c176ab463be30b808da548081ac847b158e1264be25bb0910bbc92647108089415d45fab1b3d2604e8a8eff1ae4020cf
        a39936b66827b23f371b92200be90251e6d73c5f86de5fd4a950781933d79a28272b782a2ec313efdfcc0628f43d744c2dc2ff3d
        cb66999b50c7ca895b0c64791eeaa5f29499fb1c026f84ce5b5c72ba1083cddb5ce45434631665c333b60b11593fb253c5179a2c
        8db813782a004856a1653011e93fb6d876c18366dd8683f53412c0c180f9c848592d593f8609ca736317d356e13e2bff3a9f59cd
        9aeb19cd482593d8c46128bb32423b37a9adfb482b99453fbe25a41bf6feb4aa0bef5ed24bf73c762978025482c13115e4015aac
        992e5613a3b5c2f685b84795cb6e9b2656d8c88157e52c42f978d8634c43d06fea928f2822e465aa6576e9bf419384506cc3ce3c
        54ac1a6f67dc66f3b30191e698380bc999b05abce19dc0c6dcc2dd001ec535ba18deb2df1a101023108318c75dc98611a09dc48a
        0acdec676fabdf222f07e026f059b672b56e5cbc8e1d21bbd867dd927212054681d70ea737134cdfce93b6f82ae22423274e58a0
        821cc5502e2d0ab4585e94de6975be5e0b4efce51cd3e70c25a1fbbbd609d273ad5b0d59631c531f6a0a57b9
        ",
    ),
];

fn ieee_key() -> [u8; 64] {
    let key = "2718281828459045235360287471352662497757247093699959574966967627\
               3141592653589793238462643383279502884197169399375105820974944592";
    bytes(key).try_into().unwrap()
}

fn ieee_text() -> Vec<u8> {
    (0..512).map(|i| i as u8).collect()
}

#[test]
fn xts_is_that_of_the_standard() {
    let xts = Xts::new(&ieee_key());
    for (number, ciphertext) in IEEE_1619 {
        let ciphertext = bytes(ciphertext);
        let mut data = ieee_text();
        xts.encrypt::<512>(number, None, &mut data);
        assert_eq!(data, ciphertext, "unit {number:#x}");
        xts.decrypt::<512>(number, None, &mut data);
        assert_eq!(data, ieee_text(), "unit {number:#x}");
    }
}

/// Which backend the cipher takes is up to the CPU: the others take other numbers of blocks at a time.
#[test]
fn every_width_of_the_cipher_gives_the_same() {
    struct Width<P>(Aes256, std::marker::PhantomData<P>);
    impl<P> BlockSizeUser for Width<P> {
        type BlockSize = U16;
    }
    impl<P: aes::cipher::array::ArraySize> ParBlocksSizeUser for Width<P> {
        type ParBlocksSize = P;
    }
    impl<P: aes::cipher::array::ArraySize> BlockCipherEncBackend for Width<P> {
        fn encrypt_block(&self, block: InOut<'_, '_, Block<Self>>) {
            self.0.encrypt_block_inout(block);
        }
    }
    impl<P: aes::cipher::array::ArraySize> BlockCipherDecBackend for Width<P> {
        fn decrypt_block(&self, block: InOut<'_, '_, Block<Self>>) {
            self.0.decrypt_block_inout(block);
        }
    }
    fn try_width<P: aes::cipher::array::ArraySize>() {
        let key = ieee_key();
        let cipher = Width::<P>(Aes256::new_from_slice(&key[..32]).unwrap(), std::marker::PhantomData);
        let xts = Xts::new(&key);
        let mut expected = content(3);
        xts.encrypt::<BLOCK_SIZE>(5, None, &mut expected);
        let mut data = content(3);
        xts.encrypt_with::<BLOCK_SIZE>(&cipher, 5, &mut data);
        assert!(data == expected);
        xts.decrypt_with::<BLOCK_SIZE>(&cipher, 5, &mut data);
        assert!(data == content(3));
    }
    try_width::<aes::cipher::consts::U1>();
    try_width::<U2>();
    try_width::<U8>();
    try_width::<U30>();
}

/// Made with OpenSSL 3.0 (HKDF by `openssl kdf`, XTS by Python's `cryptography` 48), never by this code. If it fails,
/// the format has changed and no encrypted volume can be read any more.
#[test]
fn the_format_stays() {
    let key = family_key();
    assert_eq!(key.check_value(&FAMILY)[..], bytes("0cdde1f3f7f8e2b96f70c888b45073bf"));
    let derived = "2ef0e155d85baedd4c55b23b8fa28b1aab6a5f38d6a2f6b15ff95f970eed3ad1\
                   fa9d56e9083c114a858ece141cd80658530a7c6ddb8128aafe57e5b0487c9554";
    assert_eq!(key.derived_bytes(&VOLUME)[..], bytes(derived));

    // One block, with a number of more than 32 bits.
    let mut data = content(1);
    volume_key().encrypt(0x12_3456_789a, &mut data);
    assert_eq!(data[..32], bytes("eafcebf4c35b1fb946d1f7e168ba0e5e4fbf3b85f59afc79dfb7d681d1a99409"));
    assert_eq!(data[2048..2064], bytes("ffbd2b6547c78035d2aa43177fff90ce"));
    assert_eq!(data[4064..], bytes("fb5914acd9a4f471ec492b5337ba9a3c8d1e5f61bcf77cc963a16dd83d23623a"));
    let hash = "2e93a9b5f572b8248d6b57df773f5b53536bf2a58e88c7f8a2453963c7ee2e8c";
    assert_eq!(Sha256::digest(&data)[..], bytes(hash));

    // More blocks than are worked on together, with numbers across 2^32.
    let mut data = content(70);
    volume_key().encrypt(0xffff_fffc, &mut data);
    let hash = "9ee4bcac71322b8a070936d2977d11daaeffc03377223ca82feac7891129309d";
    assert_eq!(Sha256::digest(&data)[..], bytes(hash));
}

#[test]
fn places_and_volumes_differ() {
    let plain = content(1);
    let encrypt = |key: &FamilyKey, volume: &[u8; 16], number| {
        let mut data = plain.clone();
        key.volume_key(volume).encrypt(number, &mut data);
        data
    };
    let other = FamilyKey::fill(|key| key[31] = 1);
    let all = [
        plain.clone(),
        encrypt(&family_key(), &VOLUME, 0),
        encrypt(&family_key(), &VOLUME, 1),
        encrypt(&family_key(), &VOLUME, 1 << 63),
        encrypt(&family_key(), &FAMILY, 0),
        encrypt(&other, &VOLUME, 0),
    ];
    for (i, a) in all.iter().enumerate() {
        for b in &all[i + 1..] {
            assert!(a.chunks(16).zip(b.chunks(16)).all(|(a, b)| a != b));
        }
    }
}

#[test]
fn a_wrong_key_is_known() {
    let check = family_key().check_value(&FAMILY);
    assert!(family_key().confirms(&FAMILY, &check));
    assert!(!family_key().confirms(&VOLUME, &check));
    assert!(!FamilyKey::fill(|_| ()).confirms(&FAMILY, &check));
    for bit in 0..128 {
        let mut wrong = check;
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(!family_key().confirms(&FAMILY, &wrong));
    }
}

#[test]
fn a_source_that_fails_makes_no_key() {
    assert_eq!(FamilyKey::try_fill(|_| Err("no entropy")).unwrap_err(), "no entropy");
}

#[test]
#[should_panic(expected = "both halves")]
fn equal_halves_are_refused() {
    key::assert_halves_differ(&[7; 64]);
}

#[test]
#[should_panic(expected = "whole blocks")]
fn parts_of_blocks_are_refused() {
    volume_key().encrypt(0, &mut [0; BLOCK_SIZE + 512]);
}

#[test]
#[should_panic(expected = "equally long")]
fn a_short_target_is_refused() {
    volume_key().encrypt_to(0, &[0; 2 * BLOCK_SIZE], &mut [0; BLOCK_SIZE]);
}

#[test]
#[should_panic(expected = "64 bits")]
fn numbers_do_not_wrap() {
    volume_key().decrypt(u64::MAX, &mut [0; 2 * BLOCK_SIZE]);
}

#[test]
fn the_last_number_and_no_blocks_are_fine() {
    let mut data = content(2);
    volume_key().encrypt(u64::MAX - 1, &mut data);
    volume_key().decrypt(u64::MAX - 1, &mut data);
    assert!(data == content(2));
    volume_key().encrypt(u64::MAX, &mut []);
}

#[test]
fn debug_shows_no_key() {
    assert_eq!(format!("{:?} {:#?}", family_key(), volume_key()), "FamilyKey(..) VolumeKey(..)");
}

/// A dependency that lost its feature `zeroize` would go unnoticed otherwise.
#[test]
fn what_holds_keys_is_wiped() {
    fn wiped<T: ZeroizeOnDrop + Send + Sync>() {}
    wiped::<FamilyKey>();
    wiped::<VolumeKey>();
    wiped::<aes::Aes256>();
    wiped::<aes::Aes256Enc>();
    // HMAC itself is not marked; its state is two of these.
    wiped::<Sha256>();
    wiped::<hmac::digest::CtOutput<hmac::Hmac<Sha256>>>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Also: blocks do not depend on what is encrypted together with them.
    #[test]
    fn decryption_undoes_encryption(seed: [u8; 32], volume: [u8; 16], first in 0..u64::MAX - 80, blocks in 0usize..80) {
        let key = FamilyKey::from_bytes(&seed).volume_key(&volume);
        let plain = content(blocks);
        let mut data = plain.clone();
        key.encrypt(first, &mut data);
        let mut other = vec![0xa5; data.len()];
        key.encrypt_to(first, &plain, &mut other);
        prop_assert!(data == other);
        for (i, block) in other.chunks_mut(BLOCK_SIZE).enumerate() {
            key.decrypt(first + i as u64, block);
        }
        prop_assert!(other == plain);
        key.decrypt(first, &mut data);
        prop_assert!(data == plain);
    }
}
